"""A progress bar in the terminal while a command plans or checks many runs."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from rich.console import Console
from rich.progress import track

Item = TypeVar("Item")

FEW = 200  # up to this many runs need no bar


def with_bar(runs: Sequence[Item], done: str, console: Console) -> Iterable[Item]:
    """Return `runs`, with a bar if there are many and this is a terminal; its title is "runs `done`"."""
    hidden = len(runs) <= FEW or not console.is_terminal
    return track(runs, f"runs {done}", console=console, transient=True, disable=hidden)
