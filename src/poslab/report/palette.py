"""Colours, marks and dashes of the arms: distinct without colour too, and the same in every figure."""

import math
from dataclasses import dataclass

# Okabe and Ito's palette without its yellow, which white paper swallows; a lighter twin for dark screens.
LIGHT = ("#0072b2", "#d55e00", "#008a63", "#b8568f", "#b07900", "#3a95cf", "#4a4a4a")
DARK = ("#5ab0ec", "#f08a4b", "#3ecb9d", "#e79bc8", "#eab93f", "#9bd4f5", "#d0d0d0")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
DASHES: tuple[tuple[float, ...], ...] = (
    (),
    (5, 2),
    (1.5, 1.5),
    (6, 2, 1.5, 2),
    (9, 3),
    (3, 1.5, 1.5, 1.5, 1.5, 1.5),
)


@dataclass(frozen=True)
class Look:
    light: str
    dark: str
    marker: str
    dash: tuple[float, ...]  # lengths on and off in points; empty: solid


def look(arm: int) -> Look:
    """How the arm of this number looks; after 126 arms, looks repeat."""
    return Look(
        LIGHT[arm % len(LIGHT)], DARK[arm % len(DARK)], MARKERS[arm % len(MARKERS)], DASHES[arm % len(DASHES)]
    )


def line_number(line: int) -> int:
    """The number of the look of an arm's lines under several rotations: the first, as trained, is grey."""
    grey = LIGHT.index("#4a4a4a")
    return line if line > grey else (line - 1) % (grey + 1)


def head_number(head: int) -> int:
    """The number of the look of an attention head's line: the head's own look, no number of a rotation's."""
    return math.lcm(len(LIGHT), len(MARKERS), len(DASHES)) + head
