"""What a claim of the ledger is made of, and what judging it gives."""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from poslab.claims.studies import Studies, StudyCommand

# Who says it. The notes are described and not named.
LECTURE = "a lecture note on relative positions and RoPE"
BLOG = "a blog on the RoFormer paper"
TIPS = "short tips on RoPE"
BOOK = "a book section on complex numbers and groups"
DEMO = "a note that computes RoPE in numpy"


class Verdict(StrEnum):
    """What may be said of a claim.

    "Here" is said of trained models: of that size, that text and that number of seeds.
    """

    HOLDS = "holds"
    HOLDS_HERE = "holds here"
    REFUTED = "refuted"
    REFUTED_HERE = "refuted here"
    UNDECIDED = "undecided"
    LITERATURE = "literature only"


@dataclass(frozen=True)
class Line:
    """A line of a figure."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]


@dataclass(frozen=True)
class Figure:
    """A figure that explains a verdict, drawn only when it is written."""

    name: str  # of its file
    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    log_x: bool = False
    log_y: bool = False
    stepped: bool = False


@dataclass(frozen=True)
class Judgement:
    """A verdict with its numbers. A claim of several parts has one, and `why` says which part holds."""

    verdict: Verdict
    numbers: str  # in one line
    why: str
    figures: tuple[Figure, ...] = ()
    study: str | None = None  # that the numbers were read from
    setting: str | None = None  # of it: size, text and seeds
    missing: tuple[StudyCommand, ...] = ()  # studies that would have to be made first

    @property
    def value(self) -> str:
        """The numbers with what they were measured on, where that is a study."""
        return self.numbers if self.setting is None else f"{self.numbers} ({self.setting})"


@dataclass(frozen=True)
class Claim:
    """A sentence that is said of positional encodings, and how it is judged."""

    number: int
    statement: str
    sources: tuple[str, ...]
    prediction: str  # what it would mean if it were true, with a number
    method: str  # what is computed or read
    better: str  # what it would take to judge it better
    judge: Callable[[Studies], Judgement]
    question: str | None = None  # of the claims most believed: what a reader asks
    exact: bool = False  # judged by what the code computes; else by a study, or not at all


class ControlError(Exception):
    """The code under a claim does not compute what it is known to: the claim cannot be judged with it."""


def control(passed: bool, known: str) -> None:
    """Raise ControlError unless a value that is known beforehand, described by `known`, came out."""
    if not passed:
        raise ControlError(known)


def judge(claim: Claim, studies: Studies) -> Judgement:
    """The claim's judgement; undecided where the code fails its control.

    A study of too few seeds to decide is missing, too.
    """
    try:
        judgement = claim.judge(studies)
    except ControlError as error:
        return Judgement(
            Verdict.UNDECIDED,
            "a control failed",
            f"The code under this claim is at fault: it misses {error}.",
        )
    if judgement.verdict is not Verdict.UNDECIDED or judgement.study is None:
        return judgement
    return replace(judgement, missing=(*studies.too_small(judgement.study), *judgement.missing))


def exactly(holds: bool) -> Verdict:
    """The verdict of a computation."""
    return Verdict.HOLDS if holds else Verdict.REFUTED


def small(value: float) -> str:
    """What should be 0: rounding differs between machines, so it has no digits."""
    return "less than 1e−9" if abs(value) < 1e-9 else f"{value:.2g}".replace("-", "−")


def undecided(missing: tuple[StudyCommand, ...], why: str, value: str = "not measured") -> Judgement:
    """A judgement that waits for studies, or for what poslab does not have."""
    return Judgement(Verdict.UNDECIDED, value, why, missing=missing)


def ledger() -> tuple[Claim, ...]:
    """All claims by number. Raises ValueError where two have the same one."""
    package = importlib.import_module("poslab.claims.ledger")
    modules = (
        importlib.import_module(f"{package.__name__}.{found.name}")
        for found in pkgutil.iter_modules(package.__path__)
    )
    claims: list[Claim] = sorted((one for each in modules for one in each.CLAIMS), key=lambda one: one.number)
    numbers = [claim.number for claim in claims]
    if twice := sorted({number for number in numbers if numbers.count(number) > 1}):
        raise ValueError(f"claims of the same number: {twice}")
    return tuple(claims)
