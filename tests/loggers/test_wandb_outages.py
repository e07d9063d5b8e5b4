"""If W&B is stopped, killed, switched off or does not answer, runs finish and nothing is lost."""

import io
import os
import signal
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import wandb
from rich.console import Console

from poslab import loggers
from poslab.commands import report
from poslab.loggers.send import login
from poslab.loggers.send.mirror import mirror_evaluation
from poslab.loggers.send.offline import identifier
from poslab.loggers.send.run import TrackedRun
from poslab.loggers.wandb import Wandb, WandbOptions
from poslab.record.facts import Manifest
from poslab.record.manifest import read_manifest
from poslab.study.display.run_bar import RunDisplay
from poslab.study.run.execute import run
from poslab.study.run.plan import plan
from poslab.study.run.stopping import Stopper
from poslab.study.sync import show_runs
from support.processes import PATIENCE, command_line, descendants
from support.runs import make, stopped, tracked_request
from support.tasks import until
from support.wandb_server.server import Listener, Reply, online, serve
from support.wandb_server.store import Seen


def services() -> list[int]:
    """Return the W&B processes started by this one."""
    return [each for each in descendants(os.getpid()) if "wandb-core" in command_line(each)]


def variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("WANDB")}


def test_a_stop_while_wandb_finishes_loses_nothing_of_the_run(tmp_path, monkeypatch):
    """The next command sends what W&B still lacks."""
    end = Wandb.finish

    def finish(*arguments: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(PATIENCE)

    monkeypatch.setattr(Wandb, "finish", finish)
    job = plan(tracked_request(seed=6), tmp_path)
    stopped(job)
    assert job.settled
    assert read_manifest(job.directory).wandb.complete is None
    monkeypatch.setattr(Wandb, "finish", end)
    show_runs([job], Console(quiet=True))
    assert read_manifest(job.directory).wandb.complete
    (part,) = job.directory.glob("wandb/offline-run-*")
    assert identifier(part) == read_manifest(job.directory).wandb.id


class Signals(RunDisplay):
    """Sends a signal to W&B's process at a step, and then others to this process."""

    def __init__(self, number: int, *others: int) -> None:
        super().__init__("made", quiet=True)
        self.number, self.others = number, others

    def step(self, step: int, loss: Any, tokens_per_second: float) -> None:
        if step == 3:
            (found,) = services()
            os.kill(found, self.number)
            for number in self.others:
                signal.raise_signal(number)


def test_a_run_continues_if_the_process_of_wandb_is_killed(tmp_path, capfd):
    job = plan(tracked_request(seed=9), tmp_path)
    before = variables()
    with Stopper().installed() as stopper:
        manifest = run(job, Signals(signal.SIGKILL), stopper)
    assert manifest.status == "done"
    assert manifest.wandb.failed
    (line,) = (line for line in capfd.readouterr().err.splitlines() if "W&B" in line)
    assert line.startswith("W&B failed")
    assert line.endswith(manifest.wandb.failed)
    assert variables() == before
    show_runs([job], Console(quiet=True))
    assert read_manifest(job.directory).wandb.complete


def test_a_stop_takes_a_second_if_wandb_hangs(tmp_path):
    """The caller is left without W&B's process and variables; the next process resumes."""
    job = plan(tracked_request(seed=10), tmp_path)
    before = variables()
    stopped(job, Signals(signal.SIGSTOP, signal.SIGTERM))
    finished = datetime.fromisoformat(read_manifest(job.directory).finished)
    assert datetime.now(UTC) - finished < timedelta(seconds=4)  # in whole seconds
    until(lambda: not services())  # killed, so it ends soon
    assert variables() == before
    manifest = make(tracked_request(seed=10), tmp_path)
    assert (manifest.status, manifest.wandb.complete, manifest.wandb.failed) == ("done", True, None)


def test_an_evaluation_that_cannot_be_sent_gives_the_reason_in_one_line(tmp_path, monkeypatch, capsys):
    def broken(*given: object, **more: object) -> None:
        raise OSError("no\nservice")

    monkeypatch.setattr(wandb, "init", broken)
    options = WandbOptions(project=None, tags=None, checkpoints=False)
    config = tracked_request(seed=1).config
    settings = {"pos": {}, "attention": {}}
    manifest = Manifest(
        study="s", run="rope", pos="rope", attention="flash", config=settings, evaluation="e-1"
    )
    assert mirror_evaluation(options, config, tmp_path / "e-1", manifest, None) is None
    line = ": W&B failed; the record is complete without it: OSError: no service\n"
    assert capsys.readouterr().err.endswith(line)


def test_a_refused_logger_leaves_nothing_of_those_before_it(tmp_path):
    before = variables()
    manifest = make(tracked_request(seed=18, logger__x={"_target_": "csv.DictReader", "f": []}), tmp_path)
    assert (manifest.status, "DictReader" in manifest.reason) == ("failed", True)
    assert services() == []
    assert variables() == before


def test_an_abandoned_run_does_not_end_the_next(tmp_path, monkeypatch):
    """Its thread fails once its process is killed, and must not end the client of the next run."""
    killed, finishing, ended_by = threading.Event(), [], []
    kill, forget = login.kill_client, login.forget_client

    def hang(*arguments: object) -> None:
        finishing.append(threading.current_thread())
        killed.wait(PATIENCE)
        raise ConnectionError("its process has died")

    def kill_and_wait() -> None:
        kill()
        killed.set()
        finishing[0].join(PATIENCE)

    def forget_in_thread() -> None:
        ended_by.append(threading.current_thread())
        forget()

    monkeypatch.setattr(loggers, "FINISH_SECONDS", 0.1)
    monkeypatch.setattr(TrackedRun, "finish", hang)
    monkeypatch.setattr(login, "kill_client", kill_and_wait)
    monkeypatch.setattr(login, "forget_client", forget_in_thread)
    assert make(tracked_request(seed=16), tmp_path).wandb.complete is None
    assert ended_by == [threading.main_thread()]
    assert services() == []


def test_a_run_of_the_caller_stays_open(tmp_path):
    """For example in a notebook: poslab's run is separate, and W&B's process continues."""
    settings = wandb.Settings(silent=True, console="off")
    with wandb.init(project="own", dir=tmp_path, settings=settings) as own:
        manifest = make(tracked_request(seed=13), tmp_path / "runs")
        assert manifest.wandb.complete
        assert manifest.wandb.id != own.id
        assert wandb.run is own
        own.log({"loss": 1.0})
        assert len(services()) == 1
    wandb.teardown()


def test_wandb_can_be_switched_off(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "disabled")
    assert make(tracked_request(seed=6), tmp_path).wandb is None
    job = plan(tracked_request(seed=6), tmp_path)
    told = io.StringIO()
    show_runs([job], Console(file=told))
    assert told.getvalue() == ""
    assert not (job.directory / "wandb").exists()


def test_a_server_that_does_not_answer_means_offline(tmp_path, monkeypatch):
    """With a key: one request, during training, replaces the minutes that the client would retry."""
    monkeypatch.delenv("WANDB_MODE")
    monkeypatch.setenv("WANDB_API_KEY", "0123456789" * 4)
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:1")
    place = make(tracked_request(seed=12), tmp_path / "runs").wandb
    assert (place.mode, place.failed) == ("offline", None)


class Nonsense(Listener):
    """Answers every request alike, and not as W&B does."""

    body = b"<html>welcome</html>"

    def take(self, seen: Seen, key: str | None) -> Reply:
        return 200, self.body


class WrongTypes(Nonsense):
    body = b'{"data": {"viewer": 5, "project": "x", "serverInfo": [], "upsertBucket": 7, "models": 3}}'


class Hangs(Nonsense):
    """Answers that it exists; at the next request it has this process stopped and never answers."""

    def take(self, seen: Seen, key: str | None) -> Reply:
        if seen.method == "POST":
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(PATIENCE)
        return super().take(seen, key)


def test_a_server_of_another_kind_is_named_in_one_line(tmp_path, capfd):
    with serve(tmp_path / "client", Nonsense) as server, online(server):
        assert report.main(["source=wandb", "study=x", "entity=somebody"]) in (1, 2)
        wandb.teardown()
    (line,) = capfd.readouterr().err.splitlines()
    assert "W&B" in line


def test_with_a_server_of_another_kind_a_run_is_offline(tmp_path, capfd):
    with serve(tmp_path / "client", WrongTypes) as server, online(server):
        manifest = make(tracked_request(seed=7), tmp_path)
    assert (manifest.status, manifest.wandb.mode) == ("done", "offline")
    assert "Error initializing run" in manifest.wandb.because
    assert "Traceback" not in capfd.readouterr().err


def test_a_stop_does_not_wait_for_a_server_that_hangs(tmp_path):
    job = plan(tracked_request(seed=14), tmp_path)
    with serve(tmp_path / "client", Hangs) as server, online(server):
        before = variables()
        stopped(job)
        assert services() == []
        assert variables() == before
    assert read_manifest(job.directory).status == "interrupted"
    assert make(tracked_request(seed=14), tmp_path).wandb.complete
