"""What the settings of logger=wandb add to a run, and that without them nothing of it is sent."""

from dataclasses import replace

import pytest
from rich.console import Console

from poslab.config.request import LoggerOptions
from poslab.config.schema import ConfigError
from poslab.record.manifest import read_manifest
from poslab.study.run.plan import plan
from poslab.study.sync import show_runs
from support.runs import TRACKED, make, request, tracked_request
from support.wandb_server.server import online, serve

PRINTED = "reading /home/someone/text.txt\nWANDB_API_KEY=0123456789 is set\nhalf a line"
ALL = {**TRACKED, "console": True, "system_statistics": True, "git_commit": True}


@pytest.fixture
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("options")
    with serve(folder / "client") as opened, online(opened), pytest.MonkeyPatch.context() as patch:
        patch.setenv("POSLAB_CACHE", str(folder / "cache"))
        yield opened
        assert opened.unknown == []


def with_logger(wanted, logger):
    """The request under other settings of its logger."""
    options = LoggerOptions.model_validate(logger)
    return replace(wanted, config=wanted.config.model_copy(update={"logger": options}))


def made(server, wanted, runs):
    """The run in W&B, which had a log on disk while it was made; and its job."""
    job = plan(wanted, runs)
    job.directory.mkdir(parents=True, exist_ok=True)
    (job.directory / "log.txt").write_text(PRINTED)
    record = make(wanted, runs)
    return server.runs[record.wandb.id], job


def test_what_is_asked_for_is_there(server, tmp_path):
    run, job = made(server, with_logger(tracked_request(), ALL), tmp_path)
    source = read_manifest(job.directory).source
    assert run.commit == (source and source.commit)
    assert run.lines["wandb-events.jsonl"]
    assert run.files["output.log"].decode() == "reading text.txt\nWANDB_API_KEY=... is set\nhalf a line\n"


def test_without_them_nothing_of_it_is_sent(server, tmp_path):
    run, _ = made(server, tracked_request(seed=1), tmp_path)
    assert run.commit is None
    assert "output.log" not in run.files
    assert "wandb-events.jsonl" not in run.lines


def test_they_are_no_part_of_a_run_s_identity(server, tmp_path):
    wanted = tracked_request(seed=1)
    assert plan(wanted, tmp_path).identity == plan(with_logger(wanted, ALL), tmp_path).identity


def test_the_log_of_a_finished_run_is_sent_once_it_is_asked_for(server, tmp_path):
    _, job = made(server, tracked_request(seed=2), tmp_path)
    again = plan(with_logger(job.request, {**TRACKED, "console": True}), tmp_path)
    for _ in range(2):
        show_runs([again], Console(quiet=True))
    run = server.runs[read_manifest(job.directory).wandb.id]
    assert run.files["output.log"].decode().startswith("reading text.txt\n")
    assert [row["_step"] for row in run.history if "train/loss" in row] == [4, 8, 12, 16, 20]


@pytest.mark.parametrize("name", ["console", "system_statistics", "git_commit"])
def test_without_wandb_they_are_refused(name):
    with pytest.raises(ConfigError, match=f"{name} is unknown to logger=local"):
        request(logger={"name": "local", name: True})
