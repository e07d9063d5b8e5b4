"""`train.py status` shows the state of a study from another terminal."""

import fcntl
import os
import shlex
import sys
from pathlib import Path

import pytest

from poslab.commands import clean
from poslab.commands.status import main
from poslab.record.active_runs import active_runs, announced
from poslab.record.files import write_sealed
from poslab.record.locks import run_lock, take
from poslab.record.schema import FORMAT
from poslab.record.study_list import enlist, read_study_list
from poslab.record.writer import RunRecord
from poslab.study.clean import removable
from support.commands import ROOT, imported, python
from support.display import printed, screen, tell, terminal


def record(runs: Path, name: str, status: str, **fields: object) -> Path:
    directory = runs / name
    seed = int(name[-1])
    RunRecord(directory).update(
        format=FORMAT, status=status, pos="rope", attention="flash", seed=seed, **{"reason": None, **fields}
    )
    return directory


@pytest.fixture
def place(tmp_path):
    """A directory with the study `mixed`, which has runs in every state."""
    runs = tmp_path / "runs" / "mixed"
    record(runs, "done-0", "done", seconds=60, seconds_validation=5, seconds_evaluation=10)
    record(runs, "broken-1", "diverged", reason="the loss is not a number at step 3")
    tell(record(runs, "running-2", "running"))
    record(runs, "killed-3", "running")
    run_lock(runs / "killed-3").touch()
    record(runs, "left-4", "interrupted", reason="stopped by the user")
    record(tmp_path / "runs", "outside-5", "failed", reason="never shown")
    listed = ["done-0", "broken-1", "running-2", "killed-3", "left-4", "next-6", "../outside-5", "", ".", 7]
    write_sealed(runs / "study.json", {"study": "mixed", "runs": listed})
    with run_lock(runs / "running-2").open("w") as file, announced([runs / "next-6"]):
        fcntl.flock(file, fcntl.LOCK_EX)
        yield tmp_path


def test_runs_that_a_running_command_will_repeat_are_waiting(place, status):
    runs = place / "runs/mixed"
    for name in ("broken-1", "left-4", "running-2"):
        os.utime(runs / name / "manifest.json", (0, 0))
    with announced([runs / "broken-1", runs / "left-4", runs / "running-2"]):  # which another command trains
        code, lines, _ = status("study=mixed")
        assert code == 0
        assert "1 done, 1 running, 1 stopped, 3 waiting" in lines[1]
        assert {run.name for run in removable(runs, [])} == {"killed-3"}


def test_runs_that_another_command_has_not_begun_stay_on_the_list(tmp_path):
    enlist(tmp_path, ["rope", "alibi"], "first")
    with announced([tmp_path / "rope"]):
        enlist(tmp_path, ["t5"], "second")
    assert read_study_list(tmp_path).runs == ("rope", "t5")


def test_reading_the_list_while_it_is_written_does_not_remove_it(tmp_path, monkeypatch):
    lock = take

    def after_a_look(*given) -> None:
        assert active_runs(tmp_path) == {}
        lock(*given)

    with monkeypatch.context() as patch:
        patch.setattr("poslab.record.active_runs.take", after_a_look)
        listing = announced([tmp_path / "rope"])
        listing.__enter__()
    assert [*active_runs(tmp_path)] == ["rope"]
    listing.__exit__(None, None, None)
    assert not [*tmp_path.iterdir()]


def test_a_run_that_slurm_has_in_its_queue_is_waiting(place, status, monkeypatch):
    """It was requeued, or its command has ended; an ended job does not count."""
    runs = place / "runs/mixed"
    (runs / ".launcher").mkdir()
    (runs / ".launcher/slurm.json").write_text('{"left-4": "17", "killed-3": "18", "next-6": "19"}')
    queue = {
        "17": ("PENDING", "left-4"),
        "18": ("RUNNING", "of another cluster"),
        "19": ("CANCELLED", "next-6"),
    }
    monkeypatch.setattr("poslab.study.launch.launchers.slurm._queue", lambda: queue)
    assert "1 running, 1 stopped, 2 waiting" in status("study=mixed")[1][1]
    assert {run.name for run in removable(runs, [])} == {"killed-3"}
    monkeypatch.setattr("poslab.study.launch.launchers.slurm._queue", lambda: None)  # it does not answer
    assert removable(runs, []) == {}


@pytest.fixture
def status(place, monkeypatch, capsys):
    """Call the command in this process; exit status, and the lines of stdout and stderr."""
    monkeypatch.chdir(place)

    def call(*arguments: str) -> tuple[int, list[str], list[str]]:
        code = main(list(arguments))
        printed = capsys.readouterr()
        return code, printed.out.splitlines(), printed.err.splitlines()

    return call


def test_status_shows_the_state_of_every_run(place, status):
    code, lines, errors = status("study=mixed")
    assert (code, errors) == (1, [])
    assert lines == [
        "mixed",
        "6 runs: 1 done, 1 failed, 1 running, 2 stopped, 1 waiting · about 2 min left",
        "rope / flash / seed 2 training 45 % step 450/1000 loss 2.310",
        "failed: rope / flash / seed 1: the loss is not a number at step 3",
        "stopped: rope / flash / seed 3: the same command resumes it",
        "stopped: rope / flash / seed 4: the same command resumes it",
    ]
    with run_lock(place / "runs/mixed/killed-3").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the lock was released


def test_status_without_a_study_shows_the_newest_and_imports_no_pytorch(place):
    other = place / "runs" / "newer"
    other.mkdir()
    write_sealed(other / "study.json", {"study": "newer", "runs": ["next-0"]})
    os.utime(place / "runs/mixed/study.json", (1e9, 1e9))
    ended = python("-X", "importtime", str(ROOT / "train.py"), "status", "runs=runs", cwd=place)
    assert ended.stdout.splitlines() == [
        "newer",
        "1 run: 1 abandoned",
        "abandoned: no running command will start these runs; the same command starts them, and "
        "`python train.py clean study=newer` removes them and those that failed or were stopped",
    ]
    assert "poslab.study.status" in imported(ended)
    assert not {"torch", "matplotlib", "pytorch_lightning"} & imported(ended)


def test_the_command_that_status_suggests_has_the_folder_of_the_runs(place, status):
    runs = place / "my runs"
    (runs / "new").mkdir(parents=True)
    write_sealed(runs / "new" / "study.json", {"study": "new", "runs": ["next-0"]})
    _, lines, _ = status("study=new", "runs=my runs")
    called = shlex.split(lines[-1].split("`")[1])
    assert called[-3:] == ["clean", "study=new", "runs=my runs"]
    assert clean.main([*called[-2:], "yes=true"]) == 0
    assert read_study_list(runs / "new").runs == ()


@pytest.mark.parametrize("study", ["nowhere", "../mixed"])
def test_a_missing_study_is_named_in_one_line(study, status):
    code, lines, (error,) = status(f"study={study}")
    assert (code, lines) == (2, [])
    assert f"no study '{study}' was trained in runs; there are: mixed" in error


@pytest.fixture
def follow(place, monkeypatch):
    """Call the command in a terminal, and `pause` at each pause; return its status and the terminal."""

    def call(pause):
        shown = terminal()
        monkeypatch.chdir(place)
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        monkeypatch.setattr("poslab.study.status.Console", lambda **options: shown)
        monkeypatch.setattr("poslab.study.status.time.sleep", lambda seconds: pause(screen(shown)))
        return main(["study=mixed"]), shown

    return call


def test_status_in_a_terminal_follows_until_the_study_ends(place, follow):
    def end(lines):
        assert "6 runs: 1 done, 1 failed, 1 running, 2 stopped, 1 waiting" in lines[1]
        assert "step 450/1000" in lines[2]
        for name in ("running-2", "killed-3", "left-4", "next-6"):
            record(place / "runs" / "mixed", name, "done")

    status, shown = follow(end)
    assert status == 1  # a run has failed
    assert printed(shown).startswith("mixed; Ctrl-C ends this view, not the study\n")
    assert screen(shown)[0] == "6 runs: 5 done, 1 failed"


def test_ctrl_c_ends_only_the_view(follow):
    def interrupt(lines):
        raise KeyboardInterrupt

    status, shown = follow(interrupt)
    assert status == 1
    assert screen(shown)[0] == "6 runs: 1 done, 1 failed, 1 running, 2 stopped, 1 waiting"
