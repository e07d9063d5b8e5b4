"""What a run tells of itself, the view of a study in a terminal and in a log, and train.py status."""

import fcntl
import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from poslab.record.locks import run_lock
from poslab.record.schema import FORMAT
from poslab.record.writer import RunRecord
from poslab.study.display.progress_file import Progress, ProgressFile, read_progress
from poslab.study.display.run_bar import RunDisplay
from poslab.study.display.study_view import Entry, StudyDisplay
from poslab.study.display.time_left import Course, Pace, seconds_left

ROOT = Path(__file__).parent.parent
TOLD = {
    "phase": "training",
    "share": 0.45,
    "share_before": 0.0,
    "step": 450,
    "steps": 1000,
    "loss": 2.3104,
    "tokens_per_second": 12345.6,
    "phase_started": 1000.0,
    "updated": 1045.0,
    "process": 17,
}


def tell(directory: Path, **changes: object) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "progress.json").write_text(json.dumps({**TOLD, **changes}))


def terminal(width: int = 120, height: int = 24) -> Console:
    # As study.py makes its console: it wraps softly, so that log lines stay whole.
    return Console(
        file=io.StringIO(), force_terminal=True, force_interactive=True, width=width, height=height,
        soft_wrap=True, color_system=None,
    )  # fmt: skip


def log() -> Console:
    return Console(file=io.StringIO(), force_terminal=False, width=80)


def printed(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def without_codes(text: str) -> str:
    return re.sub(r"\x1b\[[?0-9;]*[A-Za-z]|\r", "", text)


def screen(console: Console) -> list[str]:
    """The lines of the last frame: Live erases every line of the one before."""
    return without_codes(printed(console).split("\x1b[2K")[-1]).splitlines()


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


# What a run tells


def test_a_runs_phases_are_told_with_steps_loss_and_rate(tmp_path):
    display = RunDisplay("rope", log(), ProgressFile(tmp_path))
    with display.phase("training", 100):
        begun = read_progress(tmp_path)
        display.step(100, lambda: 2.5, 1000.0)
        stepped = read_progress(tmp_path)
    ended = read_progress(tmp_path)
    assert begun is not None
    assert (begun.phase, begun.share, begun.loss, begun.process) == ("training", 0.0, None, os.getpid())
    assert stepped is not None
    assert ended is not None
    told = (ended.share, ended.step, ended.steps, ended.loss, ended.tokens_per_second)
    assert told == (1.0, 100, 100, 2.5, 1000.0)
    assert ended.phase_started == begun.phase_started <= stepped.updated <= ended.updated
    with display.phase("evaluating"):
        evaluating = read_progress(tmp_path)
    assert evaluating is not None
    assert (evaluating.phase, evaluating.share, evaluating.step, evaluating.loss) == (
        "evaluating",
        0.0,
        None,
        None,
    )
    assert [path.name for path in tmp_path.iterdir()] == ["progress.json"]


def test_the_loss_is_read_ten_times_a_phase_in_a_log_and_the_file_changes_nothing(tmp_path):
    read = []

    def loss() -> float:
        read.append(1)
        return 2.0

    for progress in (None, ProgressFile(tmp_path)):
        console = log()
        display = RunDisplay("rope", console, progress)
        with display.phase("training", 1000):
            for step in range(1, 1001):
                display.step(step, loss, 1000.0)
        assert len(printed(console).splitlines()) == 10
    assert 20 <= len(read) <= 25  # one more for every second that the thousand steps took


def test_a_quiet_console_prints_nothing_and_the_progress_is_told(tmp_path):
    console = Console(file=io.StringIO(), force_terminal=True, quiet=True)
    display = RunDisplay("rope", console, ProgressFile(tmp_path))
    standard_error = sys.stderr
    with display.phase("training", 1):
        assert sys.stderr is standard_error
        display.step(1, lambda: 2.0, 1.0)
    assert printed(console) == ""
    assert read_progress(tmp_path).share == 1


def test_a_phase_that_breaks_off_is_not_told_as_done(tmp_path):
    display = RunDisplay("rope", log(), ProgressFile(tmp_path))
    with pytest.raises(KeyboardInterrupt), display.phase("training", 10):
        raise KeyboardInterrupt
    assert read_progress(tmp_path).share == 0


def test_a_phase_that_goes_on_from_a_checkpoint_says_from_where(tmp_path):
    console = log()
    display = RunDisplay("rope", console, ProgressFile(tmp_path))
    with display.phase("training", 1000):
        for step in (501, 1000):
            display.step(step, lambda: 2.0, 1.0)
    assert read_progress(tmp_path).share_before == 0.5
    assert "step 1000/1000" in printed(console)


def test_a_loss_that_is_no_number_is_valid_json(tmp_path):
    file = ProgressFile(tmp_path)
    file.begin("training")
    file.write(0.5, 1, 2, float("nan"), 3.0)
    assert json.loads((tmp_path / "progress.json").read_text())["loss"] is None
    assert read_progress(tmp_path).share == 0.5


@pytest.mark.parametrize("obstacle", ["no folder", "a file in its place", "a folder in its place"])
def test_progress_that_cannot_be_written_costs_no_run(obstacle, tmp_path):
    directory = tmp_path / "run"
    if obstacle == "a file in its place":
        directory.write_text("")
    elif obstacle == "a folder in its place":
        (directory / ".progress.json").mkdir(parents=True)
    display = RunDisplay("rope", log(), ProgressFile(directory))
    with display.phase("training", 1):
        display.step(1, lambda: 2.0, 1.0)
    assert read_progress(directory) is None


DAMAGED = {
    "empty": b"",
    "cut off": json.dumps(TOLD).encode()[:40],
    "no object": b"[1, 2]",
    "no text": b"\xff\xfe\x00",
    "nested too deep": b"[" * 100_000,
    "a field is missing": json.dumps({"phase": "training", "share": 0.5}).encode(),
    "a share past one": json.dumps({**TOLD, "share": 1.5}).encode(),
    "a share that is no number": json.dumps({**TOLD, "share": float("nan")}).encode(),
    "a truth value": json.dumps({**TOLD, "share": True}).encode(),
    "a text as loss": json.dumps({**TOLD, "loss": "low"}).encode(),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_progress_is_none(case, tmp_path):
    (tmp_path / "progress.json").write_bytes(DAMAGED[case])
    assert read_progress(tmp_path) is None


def test_missing_progress_is_none(tmp_path):
    assert read_progress(tmp_path / "nowhere") is None


# How long it still takes


def progress(**changes: object) -> Progress:
    return Progress(**{**TOLD, **changes})


@pytest.mark.parametrize(
    ("changes", "seconds"),
    [
        ({}, 55),  # 45 % in 45 s
        ({"share": 0.0}, None),
        ({"share": 0.01}, None),  # no basis yet
        ({"share": 1.0}, 0),
        ({"share_before": 0.35}, 247.5),  # went on from 35 %: 10 % in 45 s
        ({"share_before": 0.45}, None),
    ],
)
def test_seconds_left_of_a_phase(changes, seconds):
    assert progress(**changes).seconds_left == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize(
    ("finished", "running", "waiting", "seconds"),
    [
        ([], [], 0, None),
        ([100], [], 5, None),  # nobody works on it
        ([], [Course(10, None)], 3, None),  # no basis
        ([], [Course(10, 30)], 0, 30),
        ([], [Course(10, 30)], 1, 70),  # the next takes 40 as well
        ([], [Course(10, 30), Course(10, 30)], 2, 70),  # two at once
        ([], [Course(10, 30), Course(5, None)], 0, 35),  # the other is taken to need 40 in all
        ([100], [Course(20, None)], 0, 80),
        ([100, 200], [Course(0, None)], 3, 600),
        ([100], [Course(150, None)], 0, 0),  # overdue
        ([100], [Course(90, 10), Course(10, 90)], 1, 110),  # the first free place is taken
        ([100], [Course(50, 500)], 0, 500),  # what a run says of itself goes before the mean
    ],
)
def test_seconds_left_of_a_study(finished, running, waiting, seconds):
    assert seconds_left(finished, running, waiting) == seconds


def test_a_training_run_is_expected_to_be_evaluated_like_the_finished_ones():
    pace = Pace()
    assert pace.course(50, progress()).left == pytest.approx(55)
    pace.finish(120, {"training": 1100.0}, updated=1115.0)
    assert pace.course(50, progress()).left == pytest.approx(70)
    assert pace.course(50, progress(phase="evaluating")).left == pytest.approx(55)
    assert pace.course(50, None) == Course(50, None)


# The view


def study(directory: Path, **states: int) -> list[Entry]:
    """So many entries of each state."""
    entries = []
    for state, number in states.items():
        for index in range(number):
            run = directory / f"{state}-{index}"
            entries.append(Entry(f"rope / flash / seed {len(entries)}", run, state))
            if state in ("running", "elsewhere"):
                tell(run)
    return entries


def test_a_terminal_shows_counts_time_left_and_a_bar_a_run(tmp_path):
    console, clock = terminal(), Clock()
    entries = study(tmp_path, done=2, running=2, waiting=2)
    tell(entries[3].directory, phase="evaluating", step=None, steps=None, loss=None, tokens_per_second=None)
    clock.now = 1045.0
    with StudyDisplay(console, entries, clock=clock):
        head, first, second, *rest = screen(console)
    assert head == "6 runs: 2 done, 2 running, 2 waiting · about 3 min left"
    for word in (
        "rope / flash / seed 2  training",
        " 45 %",
        "step 450/1000",
        "loss 2.310",
        "12,346 tokens/s",
        "━",
    ):
        assert word in first
    assert "rope / flash / seed 3  evaluating" in second
    assert "loss" not in second
    assert rest == []
    assert screen(console) == ["6 runs: 2 done, 2 running, 2 waiting"]  # what stays at the end


def test_a_change_of_state_shows_at_once_and_progress_once_a_second(tmp_path):
    console, clock = terminal(), Clock()
    entries = study(tmp_path, running=1, waiting=1)
    clock.now = 1045.0
    with StudyDisplay(console, entries, clock=clock) as display:
        tell(entries[0].directory, share=0.5, updated=1046.0)
        clock.now += 0.9
        before = printed(console)
        display.update()
        assert printed(console) == before  # nothing is drawn for nothing
        entries[1].state, entries[1].note = "failed", "the disk is gone"
        display.update()
        assert "45 %" in screen(console)[1]
        assert screen(console)[2] == "failed: rope / flash / seed 1: the disk is gone"
        clock.now += 0.1
        display.update()
        assert "50 %" in screen(console)[1]
        display.print_line("a word")
        assert "a word" in printed(console)


def test_what_an_earlier_attempt_left_is_not_shown(tmp_path):
    console, clock = terminal(), Clock()
    entries = [Entry("rope", tmp_path / "run", "waiting")]
    tell(tmp_path / "run", updated=1990.0)
    clock.now = 2000.0
    with StudyDisplay(console, entries, clock=clock) as display:
        entries[0].state = "running"
        clock.now = 2001.0
        display.update()
        assert screen(console)[1].split() == ["rope", "starting"]
        tell(tmp_path / "run", share=0.02, phase_started=2001.0, updated=2002.0)
        clock.now = 2002.0
        display.update()
        assert "2 %" in screen(console)[1]


@pytest.mark.parametrize("width", [20, 50, 80, 109, 200])
@pytest.mark.parametrize("height", [3, 10, 24])
def test_500_waiting_and_60_running_fit_the_terminal(width, height, tmp_path):
    console = terminal(width, height)
    entries = study(tmp_path, failed=30, running=60, elsewhere=3, waiting=500)
    for entry in entries:
        entry.note = "a reason that is longer than most terminals are wide " * 4
    with StudyDisplay(console, entries):
        lines = screen(console)
    assert len(lines) <= max(height - 1, 3)
    assert max(map(len, lines)) <= width
    assert lines[0].startswith("593 runs: 30 failed")
    if height >= 10 and width >= 50:
        more = [int(match[1]) for line in lines if (match := re.fullmatch(r"\.\.\. and (\d+) more *", line))]
        bars, failed = sum(" 45 %" in line for line in lines), sum("failed:" in line for line in lines)
        assert (more[0] + bars, more[1] + failed) == (63, 30)
        assert bars > 0
        assert failed > 0
    left = screen(console)  # in the terminal: the reasons in full, up to a limit
    assert (sum("failed: " in line for line in left), left[-1].strip()) == (19, "... and 11 more")


def test_a_long_title_keeps_both_its_ends(tmp_path):
    console = terminal(80)
    entries = study(tmp_path, running=1)
    entries[0].title = "rope_randomised length=4096 base=20000 / softmax / seed 12"
    with StudyDisplay(console, entries):
        line = screen(console)[1]
    assert line.startswith("rope_randomised")
    assert "/ seed 12  training" in line


@pytest.mark.parametrize("make", [terminal, log])
def test_titles_and_reasons_are_text_and_nothing_else(make, tmp_path):
    console = make()
    entries = study(tmp_path, running=1, waiting=1)
    entries[0].title = "[red]rope[/red] [/nope]"
    with StudyDisplay(console, entries, 0) as display:
        entries[1].title, entries[1].state = "[link=x]alibi[/link]", "failed"
        entries[1].note = "[blink]no[/blink]\x1b]0;title\x07\nsecond line"
        display.update()
        display.print_line("[bold]said[/bold]")
        text = printed(console)
    assert "[red]rope[/red] [/nope]" in text
    assert "failed: [link=x]alibi[/link]: [blink]no[/blink] ]0;title second line" in text
    assert "[bold]said[/bold]" in text
    assert "\x07" not in text
    assert "\x1b]" not in text


def test_a_log_has_a_line_a_beginning_an_end_and_a_minute(tmp_path):
    console, clock = log(), Clock()
    entries = study(tmp_path, done=1, waiting=3)
    rope, alibi, third = entries[1:]
    with StudyDisplay(console, entries, clock=clock) as display:
        rope.state = alibi.state = "running"
        display.update()
        tell(rope.directory)
        for second in range(1, 61):  # five times a second would be the same
            clock.now = 1000.0 + second
            display.update()
        alibi.state, alibi.note = "failed", "OutOfMemoryError: 2 GiB"
        rope.state = "done"
        third.state = "elsewhere"
        display.update()
    assert printed(console).splitlines() == [
        "started: rope / flash / seed 1",
        "started: rope / flash / seed 2",
        "4 runs: 1 done, 2 running, 1 waiting · about 3 min left · "
        "rope / flash / seed 1 training 45 % loss 2.31; rope / flash / seed 2 starting",
        "done: rope / flash / seed 1, after 60 s",
        "failed: rope / flash / seed 2: OutOfMemoryError: 2 GiB",
        "made by another command: rope / flash / seed 3",
    ]


def test_a_line_of_a_log_names_a_few_of_many_runs(tmp_path):
    console, clock = log(), Clock()
    entries = study(tmp_path, running=40, waiting=500)
    with StudyDisplay(console, entries, clock=clock) as display:
        clock.now += 60
        display.update()
    (line,) = printed(console).splitlines()
    assert line.endswith("; ... and 32 more")
    assert "500 waiting" in line


# From another terminal


def record(runs: Path, name: str, status: str, **fields: object) -> Path:
    directory = runs / name
    seed = int(name[-1])
    RunRecord(directory).update(
        format=FORMAT, status=status, pos="rope", attention="flash", seed=seed, **{"reason": None, **fields}
    )
    return directory


@pytest.fixture
def place(tmp_path):
    """A directory with the study `mixed`, whose runs stand in every way."""
    runs = tmp_path / "runs" / "mixed"
    record(runs, "done-0", "done", seconds=60, seconds_validation=5, seconds_evaluation=10)
    record(runs, "broken-1", "diverged", reason="the loss is not a number at step 3")
    tell(record(runs, "running-2", "running"))
    record(runs, "killed-3", "running")
    run_lock(runs / "killed-3").touch()
    record(runs, "left-4", "interrupted", reason="stopped by the user")
    record(tmp_path / "runs", "outside-5", "failed", reason="never shown")
    listed = ["done-0", "broken-1", "running-2", "killed-3", "left-4", "next-6", "../outside-5", "", ".", 7]
    (runs / "study.json").write_text(json.dumps({"study": "mixed", "runs": listed}))
    with run_lock(runs / "running-2").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield tmp_path


def status(*arguments: str, cwd: Path, python: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *python, str(ROOT / "train.py"), *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_status_tells_how_every_run_stands(place):
    ended = status("status", "study=mixed", cwd=place)
    assert ended.stderr == ""
    assert ended.stdout.splitlines() == [
        "mixed",
        "6 runs: 1 done, 1 failed, 1 running, 2 stopped, 1 waiting · about 2 min left",
        "rope / flash / seed 2 training 45 % loss 2.31",
        "failed: rope / flash / seed 1: the loss is not a number at step 3",
        "stopped: rope / flash / seed 3: the same command goes on with it",
        "stopped: rope / flash / seed 4: the same command goes on with it",
    ]
    assert ended.returncode == 1
    with run_lock(place / "runs/mixed/killed-3").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # it was let go


def test_status_is_0_without_failures_and_the_word_order_is_free(place):
    runs = place / "elsewhere" / "good"
    record(runs, "done-0", "done")
    (runs / "study.json").write_text('{"study": "good", "runs": ["done-0"]}')
    ended = status("study=good", f"runs={place / 'elsewhere'}", "status", cwd=place)
    assert (ended.returncode, ended.stdout) == (0, "good\n1 run: 1 done\n")


def test_status_alone_is_of_the_newest_study_and_imports_no_pytorch(place):
    other = place / "runs" / "newer"
    other.mkdir()
    (other / "study.json").write_text('{"study": "newer", "runs": ["next-0"]}')
    os.utime(place / "runs/mixed/study.json", (1e9, 1e9))
    ended = status("status", cwd=place, python=("-X", "importtime"))
    assert ended.stdout.splitlines() == ["newer; there are also study=mixed", "1 run: 1 waiting"]
    imported = {line.rpartition("|")[2].strip() for line in ended.stderr.splitlines()}
    assert "poslab.study.status" in imported
    assert not {"torch", "matplotlib", "pytorch_lightning"} & imported


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["study=nowhere"], "no study 'nowhere' in runs; there are: mixed"),
        (["study=../mixed"], "no study '../mixed' in runs; there are: mixed"),
        (["runs=nowhere"], "no studies in nowhere; begin one"),
        (["pos=rope"], "status takes study=NAME and runs=DIR, not 'pos=rope'"),
        (["study="], "status takes study=NAME and runs=DIR, not 'study='"),
        (["-m"], "not '-m'"),
    ],
)
def test_a_status_that_cannot_be_told_is_one_line(arguments, line, place):
    ended = status("status", *arguments, cwd=place)
    assert (ended.returncode, ended.stdout, len(ended.stderr.splitlines())) == (2, "", 1)
    assert line in ended.stderr


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"runs": 3}', "[" * 100_000])
def test_a_damaged_list_of_runs_is_one_line(content, place):
    (place / "runs/mixed/study.json").write_text(content)
    ended = status("status", "study=mixed", cwd=place)
    assert (ended.returncode, len(ended.stderr.splitlines())) == (2, 1)
    assert "study.json is damaged" in ended.stderr


def test_a_damaged_record_is_told_as_failed(place):
    (place / "runs/mixed/done-0/manifest.json").write_text("{")
    ended = status("status", "study=mixed", cwd=place)
    assert ended.returncode == 1
    assert re.search(r"failed: done-0: .*manifest.json is damaged", ended.stdout)


@pytest.fixture
def watching(place):
    """`train.py status` in a terminal, and the terminal's other end."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, str(ROOT / "train.py"), "status"],
        cwd=place,
        stdout=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "30"},
        # As in a terminal, wherever the tests run: a shell's background jobs are told to ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        os.close(theirs)
        yield process, ours
        process.kill()
    os.close(ours)


def read_until(terminal: int, word: str) -> str:
    text = ""
    while word not in without_codes(text):
        text += os.read(terminal, 10_000).decode(errors="replace")  # OSError once the process has ended
    return without_codes(text)


def test_status_in_a_terminal_follows_until_the_study_ends(place, watching):
    process, terminal = watching
    text = read_until(terminal, "2.310")
    assert "mixed; Ctrl-C ends this view, not the study" in text
    assert "6 runs: 1 done, 1 failed, 1 running, 2 stopped, 1 waiting" in text
    tell(place / "runs/mixed/running-2", share=0.83)
    read_until(terminal, "83 %")
    for name in ("running-2", "killed-3", "left-4", "next-6"):
        record(place / "runs" / "mixed", name, "done")
    text = read_until(terminal, "5 done, 1 failed\n")
    assert process.wait(20) == 1


def test_ctrl_c_ends_the_view_alone(watching):
    process, terminal = watching
    read_until(terminal, "2.310")
    process.send_signal(signal.SIGINT)
    text = read_until(terminal, "2 stopped, 1 waiting\n")
    assert "Traceback" not in text
    assert process.wait(20) == 1  # a run has failed
