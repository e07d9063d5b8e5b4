"""The effect of logger=wandb's settings and W&B's variables on a run; without them nothing more is sent."""

import os

import pytest
from rich.console import Console

from poslab.loggers.fetch.account import open_account
from poslab.loggers.fetch.study import fetch_study
from poslab.loggers.wandb import wandb_options
from poslab.record.manifest import read_manifest
from poslab.study.run.plan import plan
from poslab.study.sync import check_variables, show_runs
from support.runs import TRACKED, make, tracked_request
from support.wandb_server.server import online, serve

PRINTED = "reading /home/someone/text.txt\nWANDB_API_KEY=0123456789 is set\nhalf a line"
ALL = {**TRACKED, "console": True, "system_statistics": True, "git_commit": True}


@pytest.fixture
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("options")
    with serve(folder / "client") as opened, online(opened):
        yield opened


def made(server, wanted, runs):
    """Train a run with a log on disk; return the run in W&B and the job."""
    job = plan(wanted, runs)
    job.directory.mkdir(parents=True, exist_ok=True)
    (job.directory / "log.txt").write_text(PRINTED)
    record = make(wanted, runs)
    return server.runs[record.wandb.id], job


def test_requested_files_are_sent(server, tmp_path):
    run, job = made(server, tracked_request(logger=ALL), tmp_path)
    source = read_manifest(job.directory).source
    assert run.commit == (source and source.commit)
    assert run.lines["wandb-events.jsonl"]
    assert run.files["output.log"].decode() == "reading text.txt\nWANDB_API_KEY=... is set\nhalf a line\n"


def test_the_log_of_a_finished_run_is_sent_once_it_is_requested(server, tmp_path):
    _, job = made(server, tracked_request(seed=2), tmp_path)
    again = plan(tracked_request(seed=2, logger={**TRACKED, "console": True}), tmp_path)
    for _ in range(2):
        show_runs([again], Console(quiet=True))
    run = server.runs[read_manifest(job.directory).wandb.id]
    assert run.files["output.log"].decode().startswith("reading text.txt\n")
    assert [row["_step"] for row in run.history if "train/loss" in row] == [2, 3, 4, 5, 6]


VARIABLES = {
    "WANDB_PROJECT": "theirs",
    "WANDB_ENTITY": "someone",
    "WANDB_TAGS": "draft, second try",
    "WANDB_NAME": "my run",
    "WANDB_RUN_GROUP": "my group",
    "WANDB_NOTES": "to see",
}


def test_the_variables_of_wandb_are_obeyed(server, tmp_path, monkeypatch):
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    wanted = tracked_request(seed=3, logger={"name": "wandb", "checkpoints": True})
    check_variables([wanted])
    run, job = made(server, wanted, tmp_path)
    assert (run.project, run.display_name) == ("theirs", "my run")
    assert (run.group, run.notes) == ("my group", "to see")
    assert set(run.tags) == {"rope", "flash", "copy", "draft", "second try"}
    place = read_manifest(job.directory).wandb
    assert (place.project, place.entity, place.complete) == ("theirs", "someone", True)
    # The study is still found, in the project that the variable names.
    monkeypatch.setenv("POSLAB_CACHE", str(tmp_path / "cache"))
    folder = fetch_study(open_account(None, None), "shown", Console(quiet=True))
    assert (folder / "shown" / job.directory.name / "metrics.csv").exists()


def test_settings_take_precedence_over_the_variables(monkeypatch):
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    arguments = {**TRACKED, "entity": "somebody", "tags": ["mine"]}
    options = wandb_options({"wandb": arguments})
    assert (options.project, options.entity, options.tags) == ("poslab", "somebody", ["mine"])


def test_the_runs_of_a_study_must_not_share_a_name(monkeypatch, capsys):
    monkeypatch.setenv("WANDB_NAME", "my run")
    check_variables([tracked_request(), tracked_request(seed=1)])
    assert "WANDB_NAME" not in os.environ
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("poslab: WANDB_NAME is ignored")
