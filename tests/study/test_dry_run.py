"""`plan=true`: the cost and the devices of the runs of a command, without starting one."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import poslab
from poslab.config.compose import arms
from poslab.config.request import Request
from poslab.config.schema import ConfigError
from poslab.measures import Trained, wanted
from poslab.model.gpt import build
from poslab.record.locks import file_lock, run_lock
from poslab.record.writer import RunRecord
from poslab.study.cost import LAST_BLOCK, cost_of, evaluated, model_of, rate_for, timed, timed_runs
from poslab.study.display.run_bar import RunDisplay
from poslab.study.dry_run import print_plan
from poslab.study.execute import run_study
from poslab.study.launch.contract import Places
from poslab.study.plan_table import _device_time
from poslab.study.run.plan import plan
from poslab.study.schedule import Placed, schedule
from support.commands import called, tiny
from support.models import ATTENTIONS, CONF, SCHEMES
from support.runs import inline, make, request

GPUS = tiny(trainer__accelerator="auto")
SHORT: dict[str, Any] = {"trainer__max_steps": 4, "trainer__warmup_steps": 1}


def planned(request: Request, wanted: bool | str = True) -> Request:
    return replace(request, config=request.config.model_copy(update={"plan": wanted}))


def printed(requests: list[Request], capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    """Return the exit status and the lines of the plan for these requests."""
    capsys.readouterr()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "200")  # no line is wrapped
        status = print_plan(requests, "")
    return status, [line.strip() for line in capsys.readouterr().out.splitlines()]


def files(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_a_study_can_be_planned_for_missing_gpus(tmp_path):
    """As typed by a user: a row per run, in the order in which they would start; nothing is recorded."""
    ended = called("-m", "pos=rope,alibi", "seed=0,1,2", "plan=2x80GB", *GPUS, cwd=tmp_path)
    assert files(tmp_path / "runs") == {}
    assert not (tmp_path / "reports").exists()
    found = re.findall(r"^ (\w+ / seed \d) .* GPU (\d) +(\d)$", ended.stdout, re.MULTILINE)
    names = [f"{pos} / seed {seed}" for pos in ("rope", "alibi") for seed in range(3)]
    assert [name for name, _, _ in found] == names
    assert sorted((gpu, wave) for _, gpu, wave in found) == [(g, w) for g in "01" for w in "123"]
    assert "The same in all runs: flash, " in ended.stdout  # which leaves room for what differs
    assert "6 to start" in ended.stdout


def test_impossible_runs_are_named_and_not_recorded(tmp_path):
    """An impossible pair, and a model too large for the assumed GPU."""
    settings = ["-m", "pos=rope,kerple", "attention=linear", "plan=1x80GB", *GPUS]
    ended = called(*settings, cwd=tmp_path, status=1)
    assert re.search(r"^cannot run: kerple / linear / seed 0: ", ended.stdout, re.MULTILINE)
    large = [item for item in GPUS if not item.startswith("model.width")]
    ended = called("-m", "model.width=32,8192", "plan=1x1GB", *large, cwd=tmp_path, status=1)
    assert re.search(r"^cannot run: .*model.width=8192.* plan=1x1GB has ", ended.stdout, re.MULTILINE)
    assert files(tmp_path / "runs") == {}


def test_a_study_can_be_planned_for_a_missing_cluster(tmp_path):
    ended = called("sweep=quickstart", "plan=true", "launcher=slurm", *GPUS, cwd=tmp_path)  # without -m
    assert "quickstart: 6 runs" in ended.stdout
    assert "launcher=slurm" in ended.stdout
    assert "wave" not in ended.stdout  # the cluster decides


def test_poslab_train_refuses_plan(tmp_path):
    with pytest.raises(ConfigError, match="plan"):
        poslab.train(planned(request()), tmp_path / "mine")


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"pos": SCHEMES["t5"], "attention": ATTENTIONS["softmax"]},
        {"model": {"layers": 1, "width": 48, "heads": 2, "mlp": "swiglu", "norm": "rms", "tied": False}},
        {"objective": arms(CONF / "objective")["masked"]},
    ],
)
def test_parameters_and_operations_equal_those_of_the_model(changes, tmp_path):
    job = plan(request(**changes), tmp_path)
    gpt = build(job.config, job.corpus.vocabulary)
    cost = cost_of(job.config.result_settings(), job.corpus.vocabulary)
    assert cost.parameters == gpt.parameter_count()
    assert cost.tokens == 20 * 8 * 32
    assert cost.training == pytest.approx(gpt.training_flops(cost.tokens))


def test_the_cost_of_long_evaluations_is_that_of_their_attention():
    """Half of all pairs, or those within a window; for O(L) as at L."""

    config = request(model={"layers": 4, "width": 32, "heads": 2}, evaluate__longest=64).config
    length, width, layers = config.context_length, config.model.width, config.model.layers

    def evaluation(pos: str, attention: str) -> float:
        parts = {"pos": arms(CONF / "pos")[pos], "attention": ATTENTIONS[attention]}
        return cost_of(config.model_copy(update=parts).result_settings(), 256).evaluation

    settings = config.result_settings()
    passes = evaluated(settings, model_of(settings, 256))
    assert max(at for _, at in passes) == 64 * length
    flat = sum(tokens for tokens, _ in passes) * model_of(settings, 256).training / 3
    scores = sum(tokens * 2 * width * layers * (at - length) for tokens, at in passes)
    assert evaluation("rope", "flash") == pytest.approx(flat + scores)
    assert evaluation("rope", "linear") == pytest.approx(flat)
    assert flat < evaluation("as_gemma4", "flash") < flat + scores  # a layer without a window


def test_recalibration_costs_as_much_as_training():
    drop = {"evaluate__rescale": ["none", "drop"]}
    costs = [
        cost_of(request(**drop, evaluate__recalibration_steps=steps).config.result_settings(), 256)
        for steps in (0, 20)  # of as many that trained
    ]
    assert costs[1].flops - costs[0].flops == pytest.approx(costs[0].training)


MASKED = arms(CONF / "objective")["masked"]


def tokens_of_evaluation(**changes: Any) -> float:
    settings = request(**changes).config.result_settings()
    return sum(tokens for tokens, _ in evaluated(settings, model_of(settings, 256)))


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("needles", {"evaluate__needles": 3}),
        ("needles", {"evaluate__needles": 3, "objective": MASKED}),
        ("retrieval", {"probe": arms(CONF / "probe")["retrieval"] | {"samples": 2}}),
    ],
)
def test_questions_cost_the_tokens_that_the_model_reads(name, changes, tmp_path):
    longer = {"context_length": 128, "evaluate__longest": 2, "data__tokens": 200_000}
    job, passed = plan(request(**longer, **changes), tmp_path), []
    gpt = build(job.config, job.corpus.vocabulary)

    def count(module: Any, given: Any) -> None:
        scored_at_the_end = 1 - (1 - LAST_BLOCK) / len(gpt.blocks)
        passed.append(given[0].numel() * (1 if len(given) == 1 else scored_at_the_end))

    gpt.register_forward_pre_hook(count)
    asked = next(measurement for measurement in wanted(job.config) if measurement.name == name)
    shown = RunDisplay("measured", quiet=True)
    list(asked.measure(Trained(gpt, job.config, job.corpus, shown, lambda: None)))
    without = {"objective": changes.get("objective", {"kind": "causal"})}
    foreseen = tokens_of_evaluation(**longer, **changes) - tokens_of_evaluation(**longer, **without)
    assert foreseen == pytest.approx(sum(passed), rel=0.01)  # a window of needles has one target fewer


def test_a_two_sided_objective_has_no_cost_of_sliding_windows():
    few, many = ({"evaluate__sliding_windows": count} for count in (10, 1_000))
    assert tokens_of_evaluation(**few) < tokens_of_evaluation(**many)
    assert tokens_of_evaluation(**few, objective=MASKED) == tokens_of_evaluation(**many, objective=MASKED)


@pytest.mark.parametrize("length", [1, 9])
def test_windows_of_odd_length_have_no_half(length):
    config = request(context_length=length, pos=SCHEMES["rope"]).config
    settings = config.result_settings()
    passes = evaluated(settings, model_of(settings, 256))
    assert min(at for _, at in passes) == length
    assert cost_of(settings, 256).evaluation > 0


def test_times_are_estimated_from_runs_of_the_arm_and_grow_with_steps(tmp_path, monkeypatch):
    made = {pos: make(request(**SHORT, pos=SCHEMES[pos]), tmp_path) for pos in ("rope", "alibi")}
    monkeypatch.setattr("poslab.study.cost.SHORTEST", 1e9)
    assert timed_runs(tmp_path, lambda manifest: True) == []  # too short: most of their time is overhead
    monkeypatch.setattr("poslab.study.cost.SHORTEST", 1e-9)
    recorded = timed_runs(tmp_path, lambda manifest: True)
    assert len(recorded) == 2

    def seconds(pos: str, **changes: Any) -> float:
        job = plan(request(**{**SHORT, "pos": SCHEMES[pos], "seed": 7, **changes}), tmp_path)
        cost = cost_of(job.config.result_settings(), job.corpus.vocabulary)
        return cost.flops / rate_for(job.config.result_settings(), cost, recorded)

    for pos, manifest in made.items():
        parts = manifest.seconds, manifest.seconds_validation, manifest.seconds_evaluation
        assert seconds(pos) == pytest.approx(sum(parts) * manifest.threads)
        untimed = manifest.updated(seconds=None, seconds_validation=None, seconds_evaluation=None)
        assert timed(untimed) is None
        evaluate = {**manifest.config["evaluate"], "recalibration_steps": 9}  # for which no time is recorded
        recalibrated = manifest.updated(config={**manifest.config, "evaluate": evaluate})
        assert timed(recalibrated).rate == timed(manifest).rate
        assert seconds(pos, trainer__max_steps=8) > seconds(pos)
    before = seconds("none")
    settings = plan(request(**SHORT, pos=SCHEMES["none"]), tmp_path).config.result_settings()
    recorded.append(replace(recorded[0], settings={**settings, "objective": MASKED}, rate=1.0))
    assert seconds("none") == before  # a run of the scheme with another objective is less similar


def test_the_state_of_each_run_is_printed(tmp_path, capsys, monkeypatch):
    """With a time estimated from finished runs."""
    monkeypatch.setattr("poslab.study.cost.SHORTEST", 1e-9)
    done, begun, new = (inline(tmp_path, seed=seed, **SHORT) for seed in range(3))
    other = inline(tmp_path, "alibi", study="other", **SHORT)
    for each in (done, other):
        make(each, tmp_path / "runs")
    job = plan(begun, tmp_path / "runs")
    RunRecord(job.directory).update(**{**job.facts, "run": job.directory.name, "status": "running"})
    before = files(tmp_path)
    copied = replace(other, config=other.config.model_copy(update={"study": "test"}))
    wanted = [planned(each) for each in (done, copied, begun, new)]
    status, lines = printed(wanted, capsys)
    assert status == 0
    rows = [line.split()[-1] for line in lines if re.match(r"(rope|alibi) / seed", line)]
    assert rows == ["finished", "copied", "resumes", "starts"]
    assert any(re.search(r"About [\d.]+ core-seconds; the last run ends after", line) for line in lines)
    assert files(tmp_path) == before
    with file_lock(run_lock(job.directory)):  # another command runs it
        assert any("1 running in another command" in line for line in printed(wanted, capsys)[1])
    assert run_study([begun, new], "") == 0
    assert "1 run to start and 1 run to resume, in " in capsys.readouterr().err


def test_trials_of_a_rate_come_first(tmp_path, capsys):
    """Until they are finished, the rates of the study's runs are not known."""
    wanted = inline(tmp_path, tune__factors=[0.5, 1.0], tune__seeds=[100], **SHORT)
    _, lines = printed([planned(wanted)], capsys)
    states = [line.split()[-1] for line in lines if line.startswith("rope / ")]
    assert states == ["starts", "starts", "trials"]
    assert run_study([wanted], "") == 0
    _, lines = printed([planned(wanted)], capsys)
    assert any("3 runs: 3 already finished" in line for line in lines)


@pytest.mark.parametrize(
    ("launcher", "waves", "trained"), [("local", "1 2 2", "1 to start"), ("slurm", "", "3 to start")]
)
def test_runs_with_the_weights_of_another_start_after_it(launcher, waves, trained, tmp_path, capsys):
    """With Slurm, where all jobs are in the queue at once, each is trained."""
    settings = {"trainer__accelerator": "auto", "launcher": arms(CONF / "launcher")[launcher]}
    wanted = [inline(tmp_path, **settings, evaluate__segments=number) for number in (3, 4, 5)]
    named = [replace(each, distinguishing_label=str(number)) for number, each in enumerate(wanted)]
    _, lines = printed([planned(each, "4x80GB") for each in named], capsys)
    assert " ".join(row[1] for line in lines if (row := re.search(r" GPU \d +(\d)", line))) == waves, lines
    assert any("wave 1." in line for line in lines) == (waves == ""), lines  # the same in all runs
    assert any(trained in line for line in lines), lines


def test_four_steps_are_timed_on_request(tmp_path, capsys):
    wanted = [inline(tmp_path), inline(tmp_path, "alibi")]
    _, lines = printed([planned(item) for item in wanted], capsys)
    assert any("no run of 5 seconds or more has finished on this kind" in line for line in lines)
    threads = torch.get_num_threads()
    status, lines = printed([planned(item, "measure") for item in wanted], capsys)
    assert (status, torch.get_num_threads()) == (0, threads)
    assert any(re.search(r"core-(seconds|minutes); the last run ends after", line) for line in lines)
    assert files(tmp_path) == {}


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.31, "0.310 core-seconds"),
        (21.5, "21.5 core-seconds"),
        (600, "10.0 core-minutes"),
        (9e3, "2.50 core-hours"),
    ],
)
def test_the_time_of_all_devices_is_in_a_unit_that_people_read(seconds, shown):
    assert _device_time(seconds, "core") == shown


def placed(runs: list[Placed], *given: Any, **more: Any) -> list[Placed]:
    schedule(runs, *given, **more)
    return runs


def test_runs_start_in_order_as_devices_get_free():
    two = Places(("GPU 0", "GPU 1"), 1)
    first = placed([Placed(seconds, 1) for seconds in (5.0, 1.0, 1.0, 9.0)], two)
    assert [(run.names[0][-1], run.wave, run.end) for run in first] == [
        ("0", 1, 5.0),
        ("1", 1, 1.0),
        ("1", 2, 2.0),
        ("1", 3, 11.0),
    ]
    after = placed([Placed(1.0, 1)], two, earlier=first)
    assert [(run.names, run.wave, run.end) for run in after] == [(("GPU 0",), 4, 12.0)]
    several = [Placed(1.0, 1, devices) for devices in (1, 2, 1)]  # the last waits for its turn
    assert [run.end for run in placed(several, Places(("GPU 0", "GPU 1"), 2))] == [1.0, 2.0, 3.0]
    shared = placed([Placed(1.0, 1) for _ in range(5)], Places(("GPU 0", "GPU 1"), 1, shared_by=2))
    assert [run.names for run in shared[:4]] == [("GPU 0",), ("GPU 1",)] * 2  # emptier ones first
    assert [run.wave for run in shared] == [1, 1, 1, 1, 2]


def test_runs_wait_for_memory():
    cores = Places(("core 0", "core 1", "core 2"), 1)
    three = [Placed(1.0, 5) for _ in range(3)]
    assert [run.end for run in placed(three, cores, [10])] == [1.0, 1.0, 2.0]
    gpus = Places(("GPU 0", "GPU 1"), 1, shared_by=2)  # which do not share memory
    larger = [Placed(1.0, 6) for _ in range(3)]
    assert [run.end for run in placed(larger, gpus, [10, 10])] == [1.0, 1.0, 2.0]
