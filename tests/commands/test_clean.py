"""`clean` lists and removes the unfinished runs of a study, and nothing else."""

import fcntl
import io
import shutil
import sys

import pytest

from poslab.commands.clean import main
from poslab.record.active_runs import announced
from poslab.record.locks import run_lock
from poslab.record.schema import FORMAT, METRICS
from poslab.record.study_list import StudyList, read_study_list, write_study_list
from poslab.record.writer import RunRecord

RUNS = {
    "rope-done": "done",
    "rope-diverged": "diverged",
    "rope-failed": "failed",
    "rope-stopped": "interrupted",
    "rope-running": "running",
    "rope-killed": "running",
}


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A study with a run in each state; two have not begun, and a running command has one of them."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "runs" / "mixed"
    for name, status in RUNS.items():
        record = RunRecord(folder / name)
        record.update(format=FORMAT, study="mixed", run=name, status=status, pos="rope", attention="flash")
        record.write_table(METRICS, [])
        for log in ("log.txt", "log.rank1.txt", ".progress.json"):  # left by a kill or a full disk
            (folder / name / log).write_text("what it printed")
        (folder / name / "checkpoints").mkdir()
        (folder / name / "checkpoints" / "00000400-5f2b1c0d9e8a7766.pt").write_text("a state")
    write_study_list(folder, StudyList("mixed", (*RUNS, "rope-never", "rope-next"), question="Which?"))
    with run_lock(folder / "rope-running").open("w") as file, announced([folder / "rope-next"]):
        fcntl.flock(file, fcntl.LOCK_EX)
        yield folder


def test_unfinished_runs_are_listed_and_removed_and_all_others_stay(place, capsys):
    assert main(["study=mixed"]) == 2  # no terminal to confirm at
    shown = capsys.readouterr()
    assert [line.split()[0] for line in shown.out.splitlines()] == [
        f"runs/mixed/{name}" for name in ("rope-failed", "rope-stopped", "rope-killed", "rope-never")
    ]
    assert "yes=true removes them" in shown.err
    assert main(["study=mixed", "yes=true"]) == 0
    assert capsys.readouterr().out.endswith("removed: 4 runs\n")
    left = ["rope-diverged", "rope-done", "rope-running"]
    assert sorted(path.name for path in place.iterdir() if path.name[0] != ".") == [*left, "study.json"]
    listed = read_study_list(place)
    assert (listed.runs, listed.question) == ((*[n for n in RUNS if n in left], "rope-next"), "Which?")
    assert main(["study=mixed", "yes=true"]) == 0
    assert capsys.readouterr().out == "mixed has no run that failed, was stopped or never began\n"


def test_a_finished_run_is_removed_if_it_is_named(place, capsys):
    assert main(["study=mixed", "run=rope-done", "yes=true"]) == 0
    assert not (place / "rope-done").exists()
    assert (place / "rope-failed").exists()
    for name, message in (
        ("rope-running", "rope-running is running"),
        ("rope-next", "rope-next is waiting"),
        ("../other", "has no run ../other"),
        ("rope-done", "has no run rope-done"),
    ):
        assert main(["study=mixed", f"run={name}", "yes=true"]) == 2
        assert message in capsys.readouterr().err


def test_the_list_of_commands_is_removed_with_the_last_run(tmp_path, monkeypatch):
    """The report names the commands of its runs."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "runs" / "small"
    write_study_list(folder, StudyList("small", ("a", "b"), question="Which?", commands=("train",)))
    for run, commands in (("a", ("train",)), ("b", ())):
        assert main(["study=small", f"run={run}", "yes=true"]) == 0
        listed = read_study_list(folder)
        assert (listed.commands, listed.question) == (commands, "Which?")


EVENTS = "events.out.tfevents.1764150000.machine.17.0"  # of TensorBoard


def test_files_that_poslab_did_not_write_stay(place, tmp_path, capsys):
    failed, stopped = place / "rope-failed", place / "rope-stopped"
    outside = tmp_path / "mine"
    (outside / "checkpoints").mkdir(parents=True)
    wandb = failed / "wandb" / "offline-run-20261123_010203-abcd1234"
    own = [wandb / "run-abcd1234.wandb", failed / "tensorboard" / EVENTS, failed / ".metrics.csv.ab12cd_9"]
    mine = [failed / name for name in ("notes.txt", "a.csv", f"logs/mine/{EVENTS}")]
    mine += [outside / name for name in ("metrics.csv", EVENTS)]
    for path in (*own, *mine):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    (failed / "progress.json").symlink_to(outside / "metrics.csv")
    for link in ("linked", "wandb/run-20261123_010203-moved"):
        (failed / link).symlink_to(outside)
    shutil.rmtree(stopped)
    stopped.symlink_to(outside)
    write_study_list(place, StudyList("mixed", ("rope-failed", "rope-stopped")))
    RunRecord(outside).update(format=FORMAT, study="mixed", run="rope-stopped", status="failed")
    assert main(["study=mixed", "yes=true"]) == 0
    assert all(path.read_text() == "x" for path in mine)
    assert not any(path.exists() for path in own)
    assert (outside / "manifest.json").exists()
    left = ["a.csv", "linked", "logs", "notes.txt"]
    assert sorted(path.name for path in failed.iterdir()) == left
    printed = capsys.readouterr().out
    assert "rope-stopped was not removed: it is a link" in printed
    assert f"files that poslab did not write: {', '.join(left[:-1])} and {left[-1]}" in printed


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("answer", "status"), [("n\n", 2), ("y\n", 0)])
def test_in_a_terminal_the_user_confirms(answer, status, place, monkeypatch):
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    monkeypatch.setattr(sys, "stdout", shown := Terminal())
    assert main(["study=mixed"]) == status
    assert "Remove 4 runs? [y/N]" in shown.getvalue()
    assert (place / "rope-failed").exists() == (status == 2)
    assert (place / "rope-done").exists()
