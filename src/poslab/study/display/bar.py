"""A bar in the terminal while a command goes through many runs, before it makes any."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from rich.console import Console

Item = TypeVar("Item")

FEW = 200  # runs that take a moment


def with_bar(runs: Sequence[Item], what: str, console: Console) -> Iterable[Item]:
    """`runs` one after the other; on a terminal with a bar, where they are many, that says `what` is done."""
    if len(runs) <= FEW or not console.is_terminal:
        return runs
    from rich.progress import track  # which small studies do without

    return track(runs, f"runs {what}", console=console, transient=True)
