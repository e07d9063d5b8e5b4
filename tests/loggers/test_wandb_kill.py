"""The content of W&B's offline files after a run and W&B's process were killed with SIGKILL."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.commands import start, tiny
from support.processes import PATIENCE, command_line, descendants, kill
from support.runs import validation_losses
from support.tasks import until
from support.wandb_list import in_file

LOST = 3.0  # a kill may lose the points of so many seconds
ENDLESS = tiny(trainer__max_steps=10**6, evaluate__validations=10**5)


def test_a_kill_loses_at_most_three_seconds_of_points_and_a_second_one_no_more(tmp_path):
    """At the first kill W&B's process is killed too; at the second it is left and ends by itself."""
    command = begun(tmp_path)
    family: list[int] = []
    try:
        seen: list[tuple[float, set[int]]] = []  # the steps in metrics.csv by time
        for moment in moments(command, tmp_path):
            seen.append((moment, metrics(tmp_path).keys()))
            if any(steps and when < moment - 1.5 * LOST for when, steps in seen):
                break
        kill([*descendants(command.pid)[::-1], command.pid])  # W&B's first
        command.wait()
        (part,) = parts(tmp_path)
        told = curve(part)
        assert told.keys() >= max((steps for when, steps in seen if when < moment - LOST), key=len)
        command = begun(tmp_path)
        for _ in moments(command, tmp_path):  # from the start, since all points up to the kill are sent again
            if not part.exists():
                break
        family = descendants(command.pid)
        theirs = [each for each in family if "wandb-core" in command_line(each)]
        assert len(theirs) == 1, list(map(command_line, family))
        kill([command.pid, *(each for each in family if each not in theirs)])
        command.wait()
        until(lambda: not any(map(command_line, theirs)))
    finally:
        kill([*family, *descendants(command.pid)[::-1], command.pid])
        command.wait()
    (other,) = parts(tmp_path)
    assert told.items() <= curve(other).items()
    recorded = metrics(tmp_path)  # with the seven digits of tables
    assert told == pytest.approx({step: recorded[step] for step in told}, rel=1e-6)


def begun(cwd: Path) -> subprocess.Popen[bytes]:
    return start("study=killed", "logger=wandb", *ENDLESS, cwd=cwd, output=cwd / "printed.txt")


def moments(command: subprocess.Popen[bytes], cwd: Path) -> Iterator[float]:
    """Yield while the command runs, up to a time limit."""
    begun = time.monotonic()
    while time.monotonic() - begun < PATIENCE:
        assert command.poll() is None, (cwd / "printed.txt").read_text()
        yield time.monotonic()
        time.sleep(0.05)
    raise AssertionError(f"not within {PATIENCE} s: {(cwd / 'printed.txt').read_text()}")


def metrics(cwd: Path) -> dict[int, float]:
    """Return the validation loss by step in the record."""
    return next(map(validation_losses, cwd.glob("runs/killed/[!.]*/metrics.csv")), {})


def parts(cwd: Path) -> list[Path]:
    return sorted(cwd.glob("runs/killed/*/wandb/offline-run-*"))


def curve(part: Path) -> dict[int, float]:
    """Return the validation loss by step, as read by W&B's own reader."""
    return {row["step"]: row["validation/loss"] for row in in_file(part)}
