"""The studies that claims are judged by: their figures, what they were made with, and how to make them.

A study is read from runs/ or from the records kept beside its report. What is said of a difference stays
within the study's own tests: a difference that they correct is used with that correction, any other with a
correction over the comparisons that the claim makes.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from poslab.analysis.claims import TARGET
from poslab.analysis.comparisons import comparable
from poslab.analysis.estimates import ArmFigures
from poslab.analysis.learning_rates import scheme_rates
from poslab.analysis.results import Results, figures, subject_of
from poslab.analysis.statistics import (
    EXPLORATORY,
    FALSE_ALARMS,
    Difference,
    Ratio,
    p_value,
    paired,
    ratio,
)
from poslab.config.installation import typed
from poslab.config.text import plain
from poslab.record.kept import kept_studies, load_available
from poslab.record.reader import ReportError
from poslab.record.study_list import studies
from poslab.report.formatting import interval, number, quantity


@dataclass(frozen=True)
class StudyCommand:
    """A study that judges a claim, and the command that makes it."""

    study: str
    arguments: str
    runs: int
    minutes: int = 2  # of a run of the default model on two CPU cores

    @property
    def command(self) -> str:
        return f"{typed('train')} -m {self.arguments}"

    @property
    def duration(self) -> str:
        minutes = self.runs * self.minutes
        shown = f"{minutes} minutes" if minutes < 100 else f"{minutes / 60:.0f} hours"
        return f"{self.runs} runs, roughly {shown} on two CPU cores"


SEEDS = "seed=0,1,2,3,4"
CONTEXT = StudyCommand("context", "sweep=claims/context", 10)
EXTRAPOLATION = StudyCommand("extrapolation", "sweep=extrapolation", 30)
CONVERGENCE = StudyCommand("convergence", "sweep=convergence", 15)
FAIR = StudyCommand("fair", "sweep=fair", 60)
CATALOGUE = StudyCommand("catalogue", "sweep=catalogue", 80)
ATTENTION = StudyCommand("attention", f"sweep=attention {SEEDS}", 60)
BASES = StudyCommand("bases", f"sweep=bases {SEEDS}", 45)
RESCALING = StudyCommand("rescaling", f"sweep=rescaling {SEEDS}", 30, minutes=5)
WARPED = StudyCommand("warped", "sweep=claims/warped", 15)
VARIANTS = StudyCommand("variants", "sweep=claims/variants", 20)
PERFORMER = StudyCommand("performer", "sweep=claims/performer", 10)
DENOMINATORS = StudyCommand("denominators", "sweep=claims/denominators", 5)
ALL = (
    *(EXTRAPOLATION, CONVERGENCE, FAIR, CATALOGUE, ATTENTION, BASES, RESCALING),
    *(WARPED, VARIANTS, PERFORMER, DENOMINATORS, CONTEXT),
)

Reading = Literal["lower", "higher", "open"]

NEEDED = 0.02  # nats: a model that loses less with half of its context is said not to use the other half


@dataclass(frozen=True)
class Compared:
    """An arm less another on one figure, and what may be said of it."""

    difference: Difference
    p: float | None  # corrected
    reading: Reading

    @property
    def text(self) -> str:
        """The difference with half its 95 % interval, its p and its seeds."""
        shown = interval(self.difference.mean, self.difference.half_width, 3, sign=True)
        p = "" if self.p is None else ", p < 0.001" if self.p < 0.001 else f", p = {self.p:.2g}"
        return f"{shown} nats{p}"


class Studies:
    """The studies at hand, each read at most once."""

    def __init__(self, runs: Path, reports: Path) -> None:
        """`runs` holds run directories by study, `reports` kept records."""
        self.runs, self.reports = runs, reports
        self.unreadable: dict[str, str] = {}  # why a study that is there has no figures
        self._known = {*studies(runs, recorded=True), *kept_studies(reports)}
        self._read: dict[str, Results | None] = {}

    def results(self, study: str) -> Results | None:
        """The figures of a study; None where it was not made, or cannot be read."""
        if study not in self._read:
            self._read[study] = self._load(study) if study in self._known else None
        return self._read[study]

    def too_small(self, study: str) -> tuple[StudyCommand, ...]:
        """The command that makes the study with enough seeds, where it has too few."""
        results = self.results(study)
        if results is None or results.seeds >= EXPLORATORY:
            return ()
        return tuple(each for each in ALL if each.study == study)

    def _load(self, study: str) -> Results | None:
        try:
            return figures(load_available(study, self.runs, self.reports), subject_of(study), None)
        except (ReportError, OSError) as error:
            self.unreadable[study] = plain(error, 300)
            return None


def arm(results: Results, label: str) -> ArmFigures | None:
    """The arm of that label, where it has finished runs."""
    return next((one for one in results.arms if one.arm.label == label and one.rows), None)


def compared(results: Results, figure: str, one: str, other: str, comparisons: int = 1) -> Compared | None:
    """Arm `one` less `other`, or None where they share no seed or their losses do not mean the same.

    `comparisons` is how many the claim makes of those that the study does not test itself: their p values
    are multiplied by it (Bonferroni).
    """
    mine, theirs = arm(results, one), arm(results, other)
    if mine is None or theirs is None or not all(comparable(run, theirs.arm) for run in mine.arm.finished):
        return None
    difference = paired(mine.by_seed(figure), theirs.by_seed(figure))
    if difference is None:
        return None
    p = _tested(results, figure, one, other)
    if p is None and difference.p is not None:
        p = min(1.0, comparisons * difference.p)
    return Compared(difference, p, read_difference(difference, p))


def _tested(results: Results, figure: str, one: str, other: str) -> float | None:
    ends = {one, other}
    return next(
        (
            test.p_holm
            for test in results.claims
            if test.figure == figure and test.other is not None and {test.arm, test.other} == ends
        ),
        None,
    )


def read_difference(difference: Difference, p: float | None) -> Reading:
    """Lower or higher where the interval and the corrected p say so, with five seeds or more."""
    half = difference.half_width
    if half is None or p is None or difference.n < EXPLORATORY:
        return "open"
    if abs(difference.mean) <= half or p >= FALSE_ALARMS:
        return "open"
    return "lower" if difference.mean < 0 else "higher"


def gain_reading(results: Results, figure: str, one: str) -> Compared | None:
    """An arm's figure against 0, such as its context gain, by the study's own test."""
    mine = arm(results, one)
    if mine is None:
        return None
    values = mine.by_seed(figure)
    difference = paired(values, dict.fromkeys(values, 0.0))
    if difference is None:
        return None
    tests = (test for test in results.claims if (test.figure, test.arm, test.other) == (figure, one, None))
    p = next((test.p_holm for test in tests), None)
    return Compared(difference, p, read_difference(difference, p))


def time_ratio(
    results: Results, one: str, other: str, share: float, comparisons: int
) -> tuple[Ratio, Reading] | None:
    """Tokens to the study's target of one arm over another's, and on which side of `share` that lies.

    An exact ratio needs its interval on one side and, as in `compared`, a corrected p; a bound is made with
    99 % and needs no correction for a few comparisons.
    """
    mine, theirs = arm(results, one), arm(results, other)
    if mine is None or theirs is None:
        return None
    times, others = mine.times.get(TARGET, {}), theirs.times.get(TARGET, {})
    value = ratio(times, others)
    if value is None:
        return None
    side: Reading = "open"
    if value.high is not None and value.high < share:
        side = "lower"
    elif value.low is not None and value.low > share:
        side = "higher"
    if value.kind == "exact":
        seeds = sorted(times.keys() & others.keys())
        logs = [math.log(times[seed].tokens / others[seed].tokens / share) for seed in seeds]
        p = p_value(logs) if len(logs) > 1 else None
        if p is None or comparisons * p >= FALSE_ALARMS:
            side = "open"
    return value, side if value.n >= EXPLORATORY else "open"


def ratio_text(value: Ratio) -> str:
    """×1.29 [1.24, 1.34], or its bound."""
    if value.kind == "at_least":
        return f"> ×{value.low:.2f}"
    if value.kind == "at_most":
        return f"< ×{value.high:.2f}"
    if value.mean is None:
        return "not known"
    return f"×{value.mean:.2f}" + ("" if value.low is None else f" [{value.low:.2f}, {value.high:.2f}]")


def half_context(results: Results, label: str) -> Difference | None:
    """What the targets of an arm lose, in nats, with L/2 tokens before them instead of L, by seed."""
    item = arm(results, label)
    return None if item is None else paired(item.by_seed("sliding_0.5x"), item.by_seed("sliding_1x"))


def uses_context(results: Results, label: str) -> bool:
    """Whether an arm is shown to lose by half of its context; else a longer one promises it nothing."""
    lost = half_context(results, label)
    return lost is not None and lost.half_width is not None and lost.mean - lost.half_width > NEEDED


def context_used(results: Results, label: str, named: str) -> str:
    """A sentence on how much of its context an arm uses; stands beside what is said of lengths past L."""
    lost, length = half_context(results, label), results.context_length
    if lost is None or length is None:
        return "How much context the models use was not measured in this study."
    shown = interval(lost.mean, lost.half_width, 2, sign=True)
    found = f"With {length // 2} tokens of context instead of {length}, {named} loss changes by {shown} nats"
    if uses_context(results, label):
        return f"{found}: these models use what they have."
    return f"{found}: these models use hardly more than that, and have little to gain past L."


def setting(results: Results) -> str:
    """What was trained, for how long, on what, with how many seeds; stands beside every number of a study."""
    run = results.reference.arm.finished[0]
    model = run.config.get("model")
    size = model if isinstance(model, Mapping) else {}
    shape = f"{size.get('layers')} layers of width {size.get('width')}" if size else ""
    parameters = run.manifest.parameters
    each = "" if not parameters else f" ({number(run.budget / parameters, 2)} a parameter)"
    if shape:
        shape += f" ({quantity(parameters)} parameters), " if parameters else ", "
    text = plain(run.manifest.corpus.name or "a text without a name", 60)
    length = "" if results.context_length is None else f"L = {results.context_length}, "
    seeds = f"{results.seeds} seed" + "s" * (results.seeds != 1)
    schedules = {str(one.config["trainer"].get("schedule", "cosine")) for one in results.finished}
    schedule = f"{' and '.join(sorted(schedules))} schedule"
    rates = scheme_rates(one.arm for one in results.arms)
    own = "".join(
        f", {label}'s own parameters at {rate:g} times the learning rate" for label, rate in rates.items()
    )
    tokens = f"{quantity(run.budget)} tokens{each} of one text, {text}"
    return plain(f"{shape}{length}{tokens}, {schedule}{own}, {seeds}", 300)
