"""Learning rates tuned arm by arm, on separate seeds and text; runs copied from other studies."""

import signal
from dataclasses import replace

import numpy as np
import pytest

from poslab.data.cache import prepare
from poslab.record.manifest import read_manifest
from poslab.record.reader import Rates
from poslab.record.study_list import read_study_list
from poslab.record.writer import RunRecord
from poslab.study import tuning
from poslab.study.execute import run_study
from poslab.study.reuse import take_over, would_take_over
from poslab.study.run.budget import BudgetError
from poslab.study.run.job import Job
from poslab.study.run.plan import plan
from poslab.study.run.refusals import record_refusal
from poslab.study.run.stopping import Stopped
from poslab.study.tuning import chosen_rates, trials, tuned
from support.commands import read
from support.models import SCHEMES
from support.runs import POSITIONS, assert_equal_results, inline, make, request


def wanted(**changes):
    return request(tune__factors=[0.7, 1.0], tune__seeds=[100, 101], **changes)


def test_tuning_uses_only_training_text():
    corpus = prepare(request().config.data)
    own = corpus.for_tuning()
    assert np.array_equal(np.concatenate([own.train, own.validation]), corpus.train)
    assert len(own.validation) == len(corpus.train) // 10
    assert own.fingerprint != corpus.fingerprint


def test_trials_are_the_run_with_other_text_seeds_and_rates():
    """At every pair of rates; a scheme without parameters only at the learning rates."""
    grid = {"tune__scheme_factors": [1.0, 3.0]}
    requests = [wanted(**grid, pos=SCHEMES[pos], seed=seed) for pos in ("t5", "rope") for seed in (0, 1)]
    found = [each.config for each in trials(requests)]  # the study's seeds share them
    tried = sorted(
        (each.pos["scheme"], each.trainer.learning_rate, each.trainer.scheme_rate, each.seed)
        for each in found
    )
    assert tried == sorted(
        (pos, rate, scheme_rate, seed)
        for pos, scheme_rates in (("t5", (1.0, 3.0)), ("rope", (1.0,)))
        for rate in (7e-3, 1e-2)
        for scheme_rate in scheme_rates
        for seed in (100, 101)
    )
    for each in found:
        assert each.part == "tuning"
        rates = {name: getattr(each.trainer, name) for name in ("learning_rate", "scheme_rate")}
        assert each.trainer == requests[0].config.trainer.model_copy(update=rates)
        for same in ("context_length", "attention", "data", "model"):
            assert getattr(each, same) == getattr(requests[0].config, same)


def rates_of(request):
    return Rates(request.config.trainer.learning_rate, request.config.trainer.scheme_rate)


def test_the_chosen_pair_is_trained(tmp_path, monkeypatch):
    """The choice includes the rate of a scheme's parameters and the learning rate."""
    requests = [wanted(pos=SCHEMES["t5"], tune__scheme_factors=[1.0, 3.0])]
    jobs = [plan(each, tmp_path) for each in trials(requests)]
    pairs = list(dict.fromkeys(rates_of(job.request) for job in jobs))
    losses = dict(zip(pairs, (1.9, 1.5, 1.8, 1.2), strict=True))
    monkeypatch.setattr(Job, "settled", True)
    monkeypatch.setattr(tuning, "_final_loss", lambda job: losses[rates_of(job.request)])
    ((chosen,), without) = tuned(requests, jobs)
    assert rates_of(chosen) == min(losses, key=losses.get)
    assert (chosen.config.part, without) == ("comparison", [])
    other = wanted(model__width=64)  # no rate was tried for this arm
    assert [each for each, _ in tuned([other], jobs)[1]] == [other]


def test_a_lost_trial_decides_nothing(tmp_path):
    """A rate with a killed process may be the best, so the arm waits for it; a diverged one is excluded."""
    requests = [request(trainer__max_steps=6, tune__factors=[0.5, 1.0], tune__seeds=[100])]
    made, lost = (plan(each, tmp_path) for each in trials(requests))
    make(made.request, tmp_path)
    ready, without = tuned(requests, [made, lost])
    assert ready == []
    assert "run the same command again" in without[0][1]
    record = RunRecord(lost.directory)
    own = {"files": {}, "run": lost.directory.name, "identity": lost.identity}
    record.update(**{**read_manifest(made.directory).as_json(), **own})
    record.update(status="diverged", reason="the loss is not a number at step 3")
    ready, without = tuned(requests, [made, lost])
    assert without == []
    assert rates_of(ready[0]) == rates_of(made.request)


def test_the_chosen_rates_are_one_line_per_arm():
    arms = [replace(request(seed=seed), pos=pos) for pos in ("rope", "alibi") for seed in (0, 1)]
    learned = replace(request(pos=POSITIONS["learned"], trainer__scheme_rate=0.5), pos="learned")
    assert chosen_rates([]) == []
    assert chosen_rates([*arms, learned])[1:] == [
        "  rope / flash / rate 0.01",
        "  alibi / flash / rate 0.01",
        "  learned / flash / rate 0.01, scheme x 0.5",
    ]


def test_the_command_tries_rates_first_and_compares_with_the_best(tmp_path, capsys):
    grid = {"tune__factors": [0.5, 2.0], "tune__seeds": [100], "reference": "alibi", "primary": "loss_1x"}
    tuned_request, study = inline(tmp_path, "alibi", trainer__max_steps=6, **grid), tmp_path / "runs" / "test"
    record_refusal(tuned_request, tmp_path / "runs", BudgetError("the disk had no room"))
    assert run_study([tuned_request], "a command") == 0
    manifests = [read_manifest(path.parent) for path in study.glob("*/manifest.json")]
    parts = [(manifest.config["part"], manifest.seed) for manifest in manifests]
    assert sorted(parts) == [("comparison", 0), ("tuning", 100), ("tuning", 100)]
    listed = read_study_list(study)
    assert (listed.reference, listed.primary) == ("alibi", "loss_1x")
    facts = {row["key"]: row["value"] for row in read(tmp_path / "reports" / "test" / "facts.csv")}
    assert facts["primary"] == "loss_1x"


def test_a_run_with_another_evaluation_is_not_trained_again(tmp_path, monkeypatch):
    trained = plan(request("one"), tmp_path)
    make(trained.request, tmp_path)
    other = {"evaluate__longest": 2, "evaluate__segments": 2}
    fresh = plan(request("two", **other), tmp_path / "elsewhere")
    make(fresh.request, tmp_path / "elsewhere")
    assert take_over([plan(request("two", evaluate__validation_windows=1), tmp_path)]) == ([], 0)
    assert take_over([plan(request("two", trainer__max_steps=5), tmp_path)]) == ([], 0)
    job = plan(request("two", **other), tmp_path)
    assert would_take_over([job]) == (set(), {job.directory})
    assert take_over([job]) == ([], 1)
    assert take_over([job]) == ([], 0)  # it has its own now

    def train(*_: object) -> None:
        raise AssertionError("the run is trained again")

    def stop(*_: object) -> None:
        raise Stopped(signal.SIGTERM)

    monkeypatch.setattr("poslab.training.loop.train", train)
    with monkeypatch.context() as stopping:
        stopping.setattr("poslab.study.run.execute.measure", stop)
        with pytest.raises(Stopped):
            make(job.request, tmp_path)
    make(job.request, tmp_path)
    assert job.settled
    assert_equal_results(fresh.directory, job.directory)
    with (trained.directory / "checkpoint.pt").open("ab") as file:
        file.write(b"\0")
    (job.directory / "checkpoint.pt").unlink()
    assert take_over([plan(request("three", evaluate__longest=2), tmp_path)]) == ([], 0)


def test_several_evaluations_of_one_command_train_once(tmp_path):
    requests = [inline(tmp_path, evaluate__longest=longest, trainer__max_steps=5) for longest in (2, 4)]
    assert run_study(requests, "a command") == 0
    found = [read_manifest(path.parent) for path in sorted(tmp_path.glob("runs/test/*/manifest.json"))]
    assert sorted(each.config["evaluate"]["longest"] for each in found) == [2, 4]
    assert len({each.seconds for each in found}) == 1  # of one training
    assert sorted(len(each.notes) for each in found) == [0, 1]


def test_a_finished_run_of_another_study_is_reused(tmp_path):
    made = plan(request("one"), tmp_path)
    make(made.request, tmp_path)
    job = plan(request("two"), tmp_path)
    assert take_over([job]) == (["one"], 0)
    assert job.settled
    assert take_over([job]) == ([], 0)  # it has its own now
    first, second = (read_manifest(each.directory) for each in (made, job))
    assert second == first.updated(study="two", taken_from="one")
    # Damaged files, and those of other code or settings, are not reused.
    with (made.directory / "position.csv").open("a") as file:
        file.write("\n")
    other = plan(request("three"), tmp_path)
    assert take_over([other]) == (["two"], 0)
    for each in (job, other):
        with (each.directory / "checkpoint.pt").open("ab") as file:
            file.write(b"\0")
    job = plan(request("four"), tmp_path)
    assert take_over([job]) == ([], 1)  # the weights of the first are undamaged
    job = plan(request("four", seed=1), tmp_path)
    assert take_over([job]) == ([], 0)
