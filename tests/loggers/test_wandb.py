"""What the real W&B client sends for runs and a study's report, to a stand-in for its server."""

import io
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml  # type: ignore[import-untyped]
from rich.console import Console

from poslab import compose
from poslab.commands.report import main
from poslab.config.compose import with_distinguishing_labels
from poslab.config.schema import ConfigError, PairError
from poslab.loggers.send.card import arm
from poslab.loggers.send.charts import axes
from poslab.loggers.send.offline import VIEW
from poslab.record.files import write_sealed
from poslab.record.manifest import read_manifest
from poslab.report.write import write_report
from poslab.study.run.plan import plan
from poslab.study.run.refusals import record_refusal
from poslab.study.sync import check_variables, print_unsynced, show_report, show_runs
from support.commands import ROOT, read
from support.models import POSITIONS
from support.records import contents
from support.runs import make, stopped_at, tracked_request, validation_losses
from support.wandb_list import documented, leet, sent, stands_for
from support.wandb_server.server import online, serve

PROBE = {"tasks": ["passkey"], "share": 0.25, "samples": 2, "depths": 2}


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """Two finished runs and their study's report, written online, the report twice."""
    folder = tmp_path_factory.mktemp("online")
    runs = folder / "runs"
    requests = [
        tracked_request(evaluate__rescale=["none", "dynamic"]),
        tracked_request("alibi", seed=1, question="Which?", probe=PROBE, context_length=128),
    ]
    told = io.StringIO()
    with serve(folder / "client") as server, online(server):
        for each in requests:
            assert make(each, runs).status == "done"
        jobs = [plan(each, runs) for each in requests]
        pair = PairError("cannot work")
        names = [
            *(job.directory.name for job in jobs),
            record_refusal(tracked_request(seed=3), runs, pair).name,
        ]
        write_sealed(runs / "shown" / "study.json", {"study": "shown", "runs": names, "question": "Which?"})
        report = write_report("shown", runs, folder / "reports")
        for _ in range(2):  # the second time nothing has changed
            show_report("shown", jobs, runs, report, Console(file=told, soft_wrap=True))
        yield SimpleNamespace(server=server, jobs=jobs, report=report.directory, told=told.getvalue())


def tracked(shown, job):
    manifest = read_manifest(job.directory)
    assert manifest.wandb.mode == "online"
    return shown.server.runs[manifest.wandb.id]


def test_a_run_has_its_configuration_and_names(shown):
    rope, alibi = (tracked(shown, job) for job in shown.jobs)
    assert (rope.project, rope.group, rope.job_type) == ("poslab", "shown", "train")
    assert alibi.display_name == "alibi / flash / seed 1"
    assert set(alibi.tags) == {"alibi", "flash", "copy"}
    assert (alibi.notes, rope.notes) == ("Which?", None)
    assert (alibi.state, alibi.exit_code) == ("finished", 0)
    assert alibi.config["pos"] == "alibi"
    assert alibi.config["arm"] == "alibi / flash"
    assert alibi.config["trainer"]["learning_rate"] == 1e-2
    assert rope.config["pos_options"] == POSITIONS["rope"]
    assert alibi.config["data_fingerprint"] == shown.jobs[1].corpus.fingerprint


def test_the_curve_is_that_of_the_record_at_its_optimizer_steps(shown):
    """To the seven digits of its table. Points of the evaluation have the following numbers."""
    for job in shown.jobs:
        run, metrics = tracked(shown, job), read(job.directory / "metrics.csv")
        curve = [row for row in run.history if "validation/loss" in row]
        for row, metric in zip(curve, metrics, strict=True):
            recorded = {
                "_step": int(metric["step"]),
                "tokens": int(metric["tokens"]),
                "validation/loss": float(metric["validation_nll"]) / int(metric["validation_tokens"]),
                "train/loss": float(metric["train_nll"]) / int(metric["train_tokens"]),
                "seconds": float(metric["seconds"]),
                "optimizer/gradient_norm": float(metric["gradient_norm"]),
            }
            assert {key: row[key] for key in recorded} == pytest.approx(recorded, rel=1e-6)
            assert row["cost/memory_gigabytes"] > 0
        added = [row["_step"] for row in run.history][len(metrics) :]
        assert added == list(range(7, 7 + len(added)))
        points = [sum(axis in row for row in run.history) for axis in axes().values()]
        assert len(added) == max(points)  # side by side
        assert run.summary["step"] == 6


def test_the_page_lists_exactly_what_wandb_has_of_a_run(shown):
    listed, lacking = documented(), {}
    for job in shown.jobs:
        for section, names in sent(tracked(shown, job)).items():
            assert [n for n in names if not any(stands_for(each, n) for each in listed[section])] == []
            absent = {each for each in listed[section] if not any(stands_for(each, n) for n in names)}
            assert [each for each in absent if not each.startswith("[")] == []
            lacking[section] = absent & lacking.get(section, absent)
    # Names in brackets exist for one of the two runs.
    assert set.union(*lacking.values()) <= {"[failure_position]", "[reason]", "[from]", "[from_run]"}


def test_wandb_can_sort_and_filter_by_the_names(shown):
    for job in shown.jobs:
        run = tracked(shown, job)
        for key in {*run.summary, *(key for row in run.history for key in row)}:
            for part in key.split("/"):
                assert re.fullmatch(r"[_a-zA-Z][_a-zA-Z0-9]*", part), key
        assert len([key for key in run.summary if "/" not in key and key[0] != "_"]) <= 25


def test_the_summary_has_the_reports_figures(shown):
    """By the same names, so that W&B's tables sort by the report's figures."""
    figures = [f"{family}_{k}x" for family in ("loss", "sliding") for k in (1, 2, 4)]
    figures += ["context_gain_4x", "early_token_curse_4x", "bits_per_byte_1x", "usable_length"]
    figures += ["parameters", "flops", "validation_loss", "tokens_per_second"]
    for job in shown.jobs:
        (row,) = (row for row in read(shown.report / "summary.csv") if row["run"] == job.directory.name)
        expected = {name: float(cell) if cell else None for name, cell in row.items() if name in figures}
        run = tracked(shown, job)
        assert expected["loss_4x"]
        assert {name: run.summary.get(name) for name in figures} == expected
        (table,) = (json.loads(content) for name, content in run.files.items() if "tables/summary_" in name)
        cells = dict(zip(table["columns"], table["data"][0], strict=True))
        assert {name: cells.get(name) for name in figures} == expected
        assert "aulc" not in run.summary  # over the tokens that all runs of a study have in common
        losses = [*validation_losses(job.directory / "metrics.csv").values()]
        least_and_last = {"min": min(losses), "last": losses[-1]}
        assert run.summary["validation/loss"] == pytest.approx(least_and_last, rel=1e-6)


def test_charts_have_their_own_axes(shown):
    rope, alibi = (tracked(shown, job) for job in shown.jobs)
    figure = read(shown.report / "bits_per_byte_by_length.csv")
    for found, pos in ((rope, "rope"), (alibi, "alibi")):
        points = {
            row["extrapolation/length"]: row["extrapolation/bits_per_byte"]
            for row in found.history
            if "extrapolation/bits_per_byte" in row
        }
        own = {int(row["length"]): float(row["mean"]) for row in figure if row["arm"].startswith(pos)}
        assert points == own
        assert len(points) == 4  # L/2 to 4 L
    seen = {key for found in (rope, alibi) for row in found.history for key in row if "/" in key}
    families = {"position/loss", "rescaled/dynamic/loss", "retrieval/passkey_1x", "attention_distance/mean"}
    assert families | {"scheme/bias/layer0_head0", "scheme/bound/layer0"} <= seen
    for row in (*rope.history, *alibi.history):
        for key in row:
            axis = axes().get(f"{key.partition('/')[0]}/*")
            assert axis is None or axis in row


def test_lineage_leads_from_the_text_to_the_report(shown):
    report = next(run for run in shown.server.runs.values() if run.job_type == "report")
    assert {each.collection for each in report.used} == {
        f"evaluation-{job.directory.name}" for job in shown.jobs
    }
    (page,) = (each for each in report.logged if each.type == "report")
    assert page.files == contents(shown.report)
    for job in shown.jobs:
        run = tracked(shown, job)
        (data,) = run.used
        assert json.loads(data.files["data.json"])["fingerprint"] == job.corpus.fingerprint
        made = {each.type: each for each in run.logged}
        assert made["model"].collection == f"checkpoint-{job.directory.name}"
        assert made["model"].files["checkpoint.pt"] == (job.directory / "checkpoint.pt").read_bytes()
        assert made["evaluation"].files["position.csv"] == (job.directory / "position.csv").read_bytes()


def test_an_unchanged_report_is_sent_once(shown):
    assert shown.told.count("report in W&B: http") == 1
    reports = [run for run in shown.server.runs.values() if run.job_type == "report"]
    assert len(reports) == 1
    assert "figures/validation_loss" in reports[0].history[0]
    assert [each.version for each in shown.server.artifacts.values() if each.type == "report"] == [0]


def test_the_report_from_wandb_is_the_local_one(shown, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with online(shown.server):
        monkeypatch.setenv("POSLAB_CACHE", str(tmp_path / "cache"))
        status = main(["source=wandb", "study=shown"])
    assert status == 0, capsys.readouterr().err
    assert contents(tmp_path / "reports" / "shown") == contents(shown.report)


def test_nothing_about_the_machine_is_sent(shown):
    """Except the path of an artifact's file, which W&B's client puts into the artifact's manifest."""
    here = str(shown.report.parent.parent)
    for seen in shown.server.requests:
        text = re.sub(r'"local_path": ?"[^"]*"', "", seen.text)
        assert here not in text
        assert sys.executable not in text
        assert not re.search(r'"(host|username|email|executable)": ?"[^"]', text)
    for job in shown.jobs:  # what has to be requested
        run = tracked(shown, job)
        assert run.commit is None
        assert "output.log" not in run.files
        assert "wandb-events.jsonl" not in run.lines


def test_an_interrupted_run_resumes_in_the_same_wandb_run(shown, tmp_path):
    with online(shown.server):
        wanted = tracked_request(seed=5, trainer__checkpoint_seconds=0.0)
        job = stopped_at(4, wanted, tmp_path)
        assert make(wanted, tmp_path).status == "done"
    found = tracked(shown, job)
    tokens = [row["tokens"] for row in found.history if "tokens" in row]
    assert tokens == [int(row["tokens"]) for row in read(job.directory / "metrics.csv")]
    assert found.state == "finished"
    assert (found.summary["status"], found.summary.get("reason")) == ("done", None)


def test_offline_runs_are_the_same_once_they_are_synced(shown, tmp_path, monkeypatch):
    """With the one command that a study prints; one run was interrupted, one began without W&B."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    runs = tmp_path / "runs"
    make(tracked_request(seed=8, logger={"name": "local"}), runs)
    requests = [tracked_request(seed=7, trainer__checkpoint_seconds=0.0), tracked_request(seed=8)]
    stopped_at(4, requests[0], runs)
    assert make(requests[0], runs).status == "done"
    jobs = [plan(each, runs) for each in requests]
    write_sealed(runs / "shown" / "study.json", {"study": "shown", "runs": [j.directory.name for j in jobs]})
    told = io.StringIO()
    console = Console(file=told, soft_wrap=True)
    show_runs(jobs, console)
    assert "W&B what it lacks of 1 finished run" in told.getvalue()
    show_report("shown", jobs, runs, write_report("shown", runs, tmp_path / "reports"), console)
    print_unsynced(jobs, console)
    view = {path.name.split("-", 2)[2]: path for path in (runs / "shown" / VIEW).iterdir()}
    assert sorted(view) == sorted(job.directory.name for job in jobs)
    assert len(list((runs / "shown" / VIEW).iterdir())) == 2  # each run once
    for job in jobs:
        inspected = json.loads(leet(view[job.directory.name], "--summary"))
        assert (inspected["name"], inspected["state"]) == (job.request.title, "finished")
        assert inspected["summary"]["loss_4x"]
    before = len(shown.server.requests)
    (line,) = (line for line in told.getvalue().splitlines() if "wandb sync" in line)
    sync = f"{Path(sys.executable).parent}/wandb sync {line.partition('wandb sync ')[2]}"
    subprocess.run(sync, shell=True, cwd="/", env={**os.environ, **shown.server.environment}, check=True)
    assert len(shown.server.requests) > before
    for job in jobs:
        place = read_manifest(job.directory).wandb
        assert place.mode == "offline"
        found = shown.server.runs[place.id]
        assert found.group == "shown"
        tokens = [row["tokens"] for row in found.history if "tokens" in row]
        assert tokens == [int(row["tokens"]) for row in read(job.directory / "metrics.csv")]
        assert found.files["record/manifest.json"] == (job.directory / "manifest.json").read_bytes()
        assert {each.type for each in found.logged} >= {"dataset", "evaluation", "model"}
        assert "loss_4x" in found.summary
    again = io.StringIO()
    print_unsynced(jobs, Console(file=again))
    assert again.getvalue() == ""


def test_an_agent_of_a_sweep_gets_one_run_with_its_id_and_the_metric_that_it_minimises(
    shown, tmp_path, monkeypatch
):
    two = [tracked_request(seed=4), tracked_request(seed=1)]
    check_variables(two)
    monkeypatch.setenv("WANDB_SWEEP_ID", "abc")
    monkeypatch.setenv("WANDB_RUN_ID", "def")
    with pytest.raises(ConfigError, match="one run"):
        check_variables(two)
    check_variables(two[:1])
    with online(shown.server):
        made = make(two[0], tmp_path)
    found = shown.server.runs["def"]
    assert (made.wandb.id, found.sweep, found.state) == ("def", "abc", "finished")
    metric = yaml.safe_load((ROOT / "sweeps" / "wandb" / "learning_rate.yaml").read_text())["metric"]["name"]
    assert found.summary[metric] == found.summary["validation/loss"]["last"]


def test_every_parameter_of_a_sweep_file_is_a_setting():
    kept = sorted((ROOT / "sweeps" / "wandb").glob("*.yaml"))
    assert len(kept) == 2
    for path in kept:
        config = yaml.safe_load(path.read_text())
        arguments = {name: each.get("value", each.get("min")) for name, each in config["parameters"].items()}
        arguments |= {n: each["values"][0] for n, each in config["parameters"].items() if "values" in each}
        compose(*(f"{name}={value}" for name, value in arguments.items()))  # raises if one is not a setting


def test_without_a_login_the_server_gets_no_request(shown, tmp_path, monkeypatch):
    monkeypatch.delenv("WANDB_MODE")
    monkeypatch.setenv("WANDB_BASE_URL", shown.server.address)
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    before = len(shown.server.requests)
    place = make(tracked_request(seed=11), tmp_path / "runs").wandb
    assert (place.mode, place.failed) == ("offline", None)
    assert len(shown.server.requests) == before


def test_an_arm_has_one_name_for_all_commands():
    wide = replace(tracked_request(seed=1), non_default_settings=("model.width=64", "trainer.max_steps=60"))
    narrow = replace(tracked_request(), non_default_settings=("trainer.max_steps=60",))
    (alone,) = with_distinguishing_labels([wide])
    beside, other = with_distinguishing_labels([wide, narrow])
    assert arm(alone) == arm(beside) == "rope / flash / model.width=64 trainer.max_steps=60"
    assert arm(other) == "rope / flash / trainer.max_steps=60"
    assert beside.title == "rope / flash / model.width=64 / seed 1"
    assert alone.title == "rope / flash / seed 1"


def test_changed_settings_are_sent_without_paths_of_the_machine(tmp_path):
    found = compose("data=text", f"data.path={tmp_path}/a.txt", "model.width=64", "seed=3")
    assert found.non_default_settings == ("data=text", "data.path=a.txt", "model.width=64")
