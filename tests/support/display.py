"""Consoles of a terminal and of a log, their output, and the progress of a run."""

import io
import json
import re
from pathlib import Path

from rich.console import Console

TOLD = {
    "phase": "training",
    "share": 0.45,
    "step": 450,
    "steps": 1000,
    "loss": 2.3104,
    "tokens_per_second": 12345.6,
    "seconds_left": 55.0,
    "updated": 1045.0,
}


def tell(directory: Path, **changes: object) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "progress.json").write_text(json.dumps({**TOLD, **changes}))


def terminal(width: int = 120, height: int = 24) -> Console:
    # As in study.py: soft wrapping, so that log lines stay whole.
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
    """Return the lines of the last frame; Live erases every line of the one before."""
    return without_codes(printed(console).split("\x1b[2K")[-1]).splitlines()


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now
