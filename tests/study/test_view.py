"""The view of a study in a terminal and in a log."""

from pathlib import Path

import pytest

from poslab.study.display import study_view
from poslab.study.display.study_view import Entry, StudyDisplay
from support.display import Clock, log, printed, screen, tell, terminal


def study(directory: Path, **states: int) -> list[Entry]:
    """Return so many entries in each state."""
    entries = []
    for state, number in states.items():
        for index in range(number):
            run = directory / f"{state}-{index}"
            entries.append(Entry(f"rope / flash / seed {len(entries)}", run, state))
            if state in ("running", "elsewhere"):
                tell(run)
    return entries


def test_a_terminal_shows_counts_time_left_and_a_bar_per_run(tmp_path):
    console = terminal()
    entries = study(tmp_path, done=2, running=2, waiting=2)
    tell(entries[3].directory, phase="evaluating", step=None, steps=None, loss=None, tokens_per_second=None)
    with StudyDisplay(console, entries, durations=[100.0], clock=Clock()):
        head, first, second, *rest = screen(console)
    assert head == "6 runs: 2 done, 2 running, 2 waiting · about 3 min left"
    for word in ("training", " 45 %", "step 450/1000", "loss 2.310", "12,346 tokens/s", "━"):
        assert word in first
    assert "rope / flash / seed 3  evaluating" in second
    assert "loss" not in second
    assert rest == []
    assert screen(console) == ["6 runs: 2 done, 2 running, 2 waiting"]  # what stays at the end


def test_a_change_of_state_shows_at_once_and_progress_once_a_second(tmp_path):
    console, clock = terminal(), Clock()
    entries = study(tmp_path, running=1, waiting=1)
    with StudyDisplay(console, entries, clock=clock) as display:
        tell(entries[0].directory, share=0.5, updated=1046.0)
        clock.now += 0.9
        before = printed(console)
        display.update()
        assert printed(console) == before  # without a change nothing is drawn
        entries[1].state, entries[1].note = "failed", "the disk is gone"
        display.update()
        assert "45 %" in screen(console)[1]
        assert screen(console)[2] == "failed: rope / flash / seed 1: the disk is gone"
        clock.now += 0.1
        display.update()
        assert "50 %" in screen(console)[1]
        display.print_line("a word")
        assert "a word" in printed(console)


def test_progress_of_an_earlier_attempt_is_not_shown(tmp_path):
    console, clock = terminal(), Clock()
    entries = [Entry("rope", tmp_path / "run", "waiting")]
    tell(tmp_path / "run", updated=1990.0)
    clock.now = 2000.0
    with StudyDisplay(console, entries, clock=clock) as display:
        entries[0].state = "running"
        clock.now = 2001.0
        display.update()
        assert screen(console)[1].split() == ["rope", "starting"]
        tell(tmp_path / "run", share=0.02, updated=2002.0)
        clock.now = 2002.0
        display.update()
        assert "2 %" in screen(console)[1]


@pytest.mark.parametrize(("width", "height"), [(50, 3), (200, 24)])
def test_500_waiting_and_60_running_fit_the_terminal(width, height, tmp_path):
    console = terminal(width, height)
    entries = study(tmp_path, failed=30, running=60, elsewhere=3, waiting=500)
    with StudyDisplay(console, entries):
        lines = screen(console)
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    assert lines[0].startswith("593 runs: 30 failed")
    assert sum("failed: " in line for line in screen(console)) == 30  # what stays, for any number of runs


def test_a_narrow_terminal_shows_all_of_a_title_and_how_far_the_run_is(tmp_path):
    console = terminal(80)
    entries = study(tmp_path, running=1)
    entries[0].title = "rope_randomised length=4096 base=20000 / softmax / seed 12"
    with StudyDisplay(console, entries):
        text = " ".join(" ".join(screen(console)).split())
    for word in ("rope_randomised", "seed 12", "training", "45 %", "step 450/1000", "loss 2.310"):
        assert word in text


@pytest.mark.parametrize("make", [terminal, log])
def test_titles_and_reasons_are_shown_as_text(make, tmp_path, monkeypatch):
    monkeypatch.setattr(study_view, "LINE_SECONDS", 0.0)
    console = make()
    entries = study(tmp_path, running=1, waiting=1)
    entries[0].title = "[red]rope[/red] [/nope]"
    with StudyDisplay(console, entries) as display:
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


def test_a_log_has_a_line_per_start_per_end_and_per_minute(tmp_path):
    console, clock = log(), Clock()
    entries = study(tmp_path, done=1, waiting=3)
    rope, alibi, third = entries[1:]
    with StudyDisplay(console, entries, clock=clock) as display:
        rope.state = alibi.state = "running"
        display.update()
        tell(rope.directory)
        for second in range(1, 61):  # five times a second would give the same
            clock.now = 1000.0 + second
            display.update()
        alibi.state, alibi.note = "failed", "OutOfMemoryError: 2 GiB"
        rope.state = "done"
        third.state = "elsewhere"
        display.update()
    lines = printed(console).splitlines()
    assert [line for line in lines if " 1 done" not in line] == [
        "running: rope / flash / seed 1",
        "running: rope / flash / seed 2",
        "done: rope / flash / seed 1, after 60 s",
        "failed: rope / flash / seed 2: OutOfMemoryError: 2 GiB",
        "run by another command: rope / flash / seed 3",
    ]
    assert "rope / flash / seed 1 training 45 % step 450/1000 loss 2.310" in lines[2]
    assert "1 done, 2 running, 1 waiting · about 2 min left" in lines[2]


def test_a_line_of_a_log_names_a_few_of_many_runs(tmp_path):
    console, clock = log(), Clock()
    with StudyDisplay(console, study(tmp_path, running=40, waiting=500), clock=clock) as display:
        clock.now += 60
        display.update()
    (line,) = printed(console).splitlines()
    assert line.endswith("; ...")
