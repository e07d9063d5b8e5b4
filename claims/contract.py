"""The fields of a claim in the ledger and of its judgement."""

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from string import ascii_lowercase
from typing import Any

from claims.studies import EXPLORATORY, Compared, Reading, Studies, StudyCommand

# The sources: five unpublished notes, each with a letter, and papers.
LECTURE = "unpublished teaching notes (A)"
BLOG = "unpublished teaching notes (B)"
TIPS = "unpublished teaching notes (C)"
BOOK = "unpublished teaching notes (D)"
DEMO = "unpublished teaching notes (E)"
NOTES = {
    "A": "a lecture on relative positions and RoPE",
    "B": "a text on the RoFormer paper",
    "C": "short tips on RoPE",
    "D": "a book section on complex numbers and groups",
    "E": "a computation of RoPE in numpy",
}
ROFORMER = "Su et al. 2021, RoFormer (arXiv 2104.09864)"


class Verdict(StrEnum):
    """The verdict on a claim, or on a part of one.

    "Here" means in the trained models: with that size, budget, text and number of seeds.
    """

    HOLDS = "holds"
    HOLDS_HERE = "holds here"
    PARTLY = "holds in part"  # one part of it holds, and none is refuted
    IN_PART = "in part"  # one part of it holds, and another is refuted
    REFUTED = "refuted"
    REFUTED_HERE = "refuted here"
    NOT_TESTED = "not tested"  # the subject of the claim was neither computed nor trained
    UNDECIDED = "undecided"  # it was, but the result does not decide
    LITERATURE = "literature"


# The sides of a question, each with the weaker verdict last.
TRUE = (Verdict.HOLDS, Verdict.HOLDS_HERE)
FALSE = (Verdict.REFUTED, Verdict.REFUTED_HERE)
OPEN = (Verdict.LITERATURE, Verdict.NOT_TESTED, Verdict.UNDECIDED)


def combined(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the verdict of a claim from those of its parts.

    If all parts hold, or all are refuted, it is the weakest of their verdicts: one part that holds only
    "here" makes the whole hold "here". If some parts hold, it is "in part" when another is refuted and
    "holds in part" otherwise. If none holds and not all are refuted, it is open.
    """
    for side in (TRUE, FALSE):
        if all(verdict in side for verdict in verdicts):
            return max(verdicts, key=side.index)
    if any(verdict in TRUE for verdict in verdicts):
        return Verdict.IN_PART if any(verdict in FALSE for verdict in verdicts) else Verdict.PARTLY
    return max((verdict for verdict in verdicts if verdict in OPEN), key=OPEN.index)


TRUE_IF_LOWER: Mapping[Reading, Verdict] = {
    "lower": Verdict.HOLDS_HERE,
    "higher": Verdict.REFUTED_HERE,
    "open": Verdict.UNDECIDED,
}


CLEAR = 0.02  # nats: a smaller difference counts as none


def no_clear_difference(found: Compared, sign: int) -> Verdict:
    """Return the verdict on "not lower" (`sign` -1) or "not higher" (1) by `CLEAR`, from the interval."""
    half = found.difference.half_width
    if half is None or found.difference.n < EXPLORATORY:
        return Verdict.UNDECIDED
    low, high = (sign * found.difference.mean + change for change in (-half, half))
    if high < CLEAR:
        return Verdict.HOLDS_HERE
    return Verdict.REFUTED_HERE if low > CLEAR and found.reading != "open" else Verdict.UNDECIDED


class Kind(StrEnum):
    """How a claim is counted."""

    FINDING = "finding"
    CHECK = "check"  # of arithmetic, a printed digit or an index: it tests the code and finds nothing new


@dataclass(frozen=True)
class Line:
    """A line of a figure."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]


@dataclass(frozen=True)
class Figure:
    """A figure that explains a verdict; it is drawn only when the page is written."""

    name: str  # of its file, without a suffix
    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    log_x: bool = False
    log_y: bool = False
    stepped: bool = False


@dataclass(frozen=True)
class Part:
    """A part of a claim that can be true independently of the others."""

    statement: str
    verdict: Verdict
    numbers: str


@dataclass(frozen=True)
class Judgement:
    """A verdict with its numbers; `in_parts` builds that of a claim with parts."""

    verdict: Verdict
    numbers: str  # in one line
    why: str
    figures: tuple[Figure, ...] = ()
    study: str | None = None  # from which the numbers were read
    setting: str | None = None  # of that study: size, budget, text and seeds
    missing: tuple[StudyCommand, ...] = ()  # studies that would have to be run first
    parts: Mapping[str, Part] = field(default_factory=dict)  # by their letters

    @property
    def value(self) -> str:
        """The numbers, followed by the setting if they come from a study."""
        return self.numbers if self.setting is None else f"{self.numbers} ({self.setting})"

    @property
    def answer(self) -> str:
        """The verdict as the answer to a question."""
        words = {**dict.fromkeys(TRUE, "yes"), **dict.fromkeys(FALSE, "no"), Verdict.PARTLY: "in part"}
        word = words.get(self.verdict, self.verdict.value)
        verdicts = {self.verdict, *(part.verdict for part in self.parts.values())}
        tested_here = self.verdict not in OPEN and verdicts & {Verdict.HOLDS_HERE, Verdict.REFUTED_HERE}
        rest = "; the rest open" if self.verdict is Verdict.PARTLY else ""
        return f"{word}{', here' if tested_here else ''}{rest}"

    def part(self, letter: str | None) -> "Judgement":
        """Return the judgement of one part, or the whole if `letter` is None or the part was not judged."""
        if letter is None or letter not in self.parts:
            return self
        return replace(self, verdict=self.parts[letter].verdict, parts={})


def in_parts(*parts: Part, why: str, **more: Any) -> Judgement:
    """Return the judgement of a claim with these parts; `more` are other fields of Judgement."""
    lettered = dict(zip(ascii_lowercase, parts, strict=False))
    numbers = (f"({letter}) {part.verdict.value}: {part.numbers}" for letter, part in lettered.items())
    verdict = combined([part.verdict for part in parts])
    return Judgement(verdict, "; ".join(numbers), why, parts=lettered, **more)


@dataclass(frozen=True)
class Claim:
    """A statement about positional encodings, and how it is judged."""

    number: int
    statement: str
    sources: tuple[str, ...]
    prediction: str  # what would be measured if it were true, with a number
    method: str  # what is computed or read
    better: str  # what would be needed to judge it better
    judge: Callable[[Studies], Judgement]
    question: str | None = None  # that a reader asks; only for the most common claims
    asked: str | None = None  # the letter of the part that answers the question; None for the whole
    exact: bool = False  # judged by what the code computes, at least in part
    kind: Kind = Kind.FINDING


class ControlError(Exception):
    """The code under a claim misses a known value, so that the claim cannot be judged with it."""


def control(passed: bool, known: str) -> None:
    """Raise ControlError unless the code `passed` on a value known beforehand, which `known` describes."""
    if not passed:
        raise ControlError(known)


def judge(claim: Claim, studies: Studies) -> Judgement:
    """Return the claim's judgement; undecided if the code fails its control.

    A study with too few seeds to decide is listed as missing, too.
    """
    try:
        judgement = claim.judge(studies)
    except ControlError as error:
        return Judgement(
            Verdict.UNDECIDED,
            "a control failed",
            f"The code under this claim is wrong: it does not give {error}.",
        )
    verdicts = {judgement.verdict, *(part.verdict for part in judgement.parts.values())}
    if Verdict.UNDECIDED not in verdicts or judgement.study is None:
        return judgement
    return replace(judgement, missing=(*studies.too_small(judgement.study), *judgement.missing))


def exactly(holds: bool) -> Verdict:
    """Return the verdict of a computation."""
    return Verdict.HOLDS if holds else Verdict.REFUTED


def untested(missing: tuple[StudyCommand, ...], why: str, value: str = "not measured") -> Judgement:
    """Return a judgement that waits for studies, or for something that poslab does not have."""
    return Judgement(Verdict.NOT_TESTED, value, why, missing=missing)


def ledger() -> tuple[Claim, ...]:
    """Return all claims, ordered by number."""
    package = importlib.import_module("claims.ledger")
    names = (f"{package.__name__}.{found.name}" for found in pkgutil.iter_modules(package.__path__))
    claims = (claim for name in names for claim in importlib.import_module(name).CLAIMS)
    return tuple(sorted(claims, key=lambda claim: claim.number))
