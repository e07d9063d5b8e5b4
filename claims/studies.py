"""The studies that claims are judged by: their figures, their settings, and how to run them.

A study is read from runs/ or from the records archived beside its report. Differences are judged by the
study's own tests: a difference that they correct is used with that correction, any other with a
correction over the comparisons that the claim makes.
"""

import math
import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import pandas

import poslab
from claims.formatting import plain
from poslab import Difference, Estimate, Ratio, interval, number, quantity

EXPLORATORY = 5  # fewer seeds decide nothing
FALSE_ALARMS = 0.05  # p from which on a difference is noise


@dataclass(frozen=True)
class StudyCommand:
    """A study that judges a claim, and the command that makes it."""

    study: str
    arguments: str
    runs: int
    minutes: int = 2  # of a run of the default model on two CPU cores

    @property
    def command(self) -> str:
        return f"python train.py -m {self.arguments}"

    @property
    def duration(self) -> str:
        minutes = self.runs * self.minutes
        span = f"{minutes} minutes" if minutes < 100 else f"{minutes / 60:.0f} hours"
        return f"{self.runs} runs, roughly {span} on two CPU cores"


SEEDS = "seed=0,1,2,3,4"
CONTEXT = StudyCommand("context", "sweep=claims/context", 10)
EXTRAPOLATION = StudyCommand("extrapolation", "sweep=extrapolation", 30)
CONVERGENCE = StudyCommand("convergence", "sweep=convergence", 15)
BUDGET = StudyCommand("budget", "sweep=budget", 120)
CATALOGUE = StudyCommand("catalogue", "sweep=catalogue", 80)
ATTENTION = StudyCommand("attention", f"sweep=attention {SEEDS}", 60)
BASES = StudyCommand("bases", f"sweep=bases {SEEDS}", 45)
RESCALING = StudyCommand("rescaling", f"sweep=rescaling {SEEDS}", 30, minutes=2)
WARPED = StudyCommand("warped", "sweep=claims/warped", 15)
VARIANTS = StudyCommand("variants", "sweep=claims/variants", 20)
PERFORMER = StudyCommand("performer", "sweep=claims/performer", 10)
DENOMINATORS = StudyCommand("denominators", "sweep=claims/denominators", 5)
PARTS = StudyCommand("parts", "sweep=claims/parts", 25)
CANON = StudyCommand("canon", "sweep=claims/canon", 20)
MASKED = StudyCommand(
    "masked", "sweep=masked model=ladder_96 context_length=64 trainer.max_steps=1800", 18, minutes=3
)
MIXERS = StudyCommand("mixers", f"sweep=mixers {SEEDS}", 50, minutes=4)
TASKS = StudyCommand("tasks", "sweep=tasks", 200, minutes=1)
ALL = (
    *(EXTRAPOLATION, CONVERGENCE, BUDGET, CATALOGUE, ATTENTION, BASES, RESCALING),
    *(WARPED, VARIANTS, PERFORMER, DENOMINATORS, CONTEXT, PARTS, CANON, MASKED, MIXERS, TASKS),
)

Reading = Literal["lower", "higher", "open"]

NEEDED = 0.02  # nats: a model that loses less with half of its context does not use the other half


@dataclass(frozen=True)
class Compared:
    """An arm less another on one figure, and the conclusion that it allows."""

    difference: Difference
    p: float | None  # corrected
    reading: Reading

    @property
    def text(self) -> str:
        """The difference with half its 95 % interval, its p and its seeds."""
        change = interval(self.difference.mean, self.difference.half_width, 3, sign=True)
        p = "" if self.p is None else ", p < 0.001" if self.p < 0.001 else f", p = {self.p:.2g}"
        return f"{change} nats{p}"


class Results:
    """A study that was read: its arms, what it tests, and the rows of its tables."""

    def __init__(self, study: poslab.Study) -> None:
        self.study = study
        arms = self.rows("arms")
        self.arms = {str(row["arm"]): row for row in arms if row["seeds_finished"]}
        self.reference = str(next(row["arm"] for row in arms if row["reference"]))
        self.seeds = max(int(row["seeds_finished"]) for row in self.arms.values())
        self.lengths = sorted({int(row["context_length"]) for row in self.arms.values()})
        self.context_length = self.lengths[0] if len(self.lengths) == 1 else None
        found = [re.fullmatch(r"sliding_([\d.]+)x", str(column)) for column in study.runs]
        self.multiples = tuple(float(match[1]) for match in found if match)  # of L, the lengths measured
        facts = {str(row["key"]): str(row["value"]) for row in self.rows("facts")}
        self.primary = facts.get("primary")  # the figure that the study tests, such as sliding_8x

    @cached_property
    def configs(self) -> dict[str, Any]:
        """The configuration of each arm."""
        return {label: self.study.config(label) for label in self.arms}

    def rows(self, table: str, **values: Hashable) -> list[dict[Hashable, Any]]:
        """The rows of a table that have these values; none where the study has no such table."""
        frame = pandas.DataFrame(self.study.tables.get(table, {}))
        for column, value in values.items():
            if column in frame:
                frame = frame[frame[column] == value]
        found: list[dict[Hashable, Any]] = frame.to_dict("records")
        return found

    def finished(self, label: str) -> list[dict[Hashable, Any]]:
        """The finished runs of an arm, without the trials of its rates."""
        return self._finished.get(label, [])

    @cached_property
    def _finished(self) -> dict[str, list[dict[Hashable, Any]]]:
        found: dict[str, list[dict[Hashable, Any]]] = {}
        for run in self.rows("summary", status="done"):
            if run["part"] != "tuning":
                found.setdefault(str(run["arm"]), []).append(run)
        return found

    def by_steps(self, pos: str) -> dict[int, str]:
        """The arms of an option of `pos` by their steps of training; of several, the first."""
        found: dict[int, str] = {}
        for label, config in self.configs.items():
            if self.finished(label)[0]["pos"] == pos:
                found.setdefault(config["trainer"]["max_steps"], label)
        return found

    def per_parameter(self, label: str) -> str:
        """The training tokens per parameter of an arm."""
        run, *_ = self.finished(label)
        return number(run["budget"] / run["parameters"], 2) if run["parameters"] else "?"

    def by_seed(self, label: str, figure: str) -> dict[int, float]:
        """A figure of an arm by seed; empty where the arm or the figure is missing."""
        known = label in self.arms and figure in self.study.runs
        return self.study.by_seed(label, figure) if known else {}

    def estimate(self, label: str, figure: str) -> Estimate | None:
        """A figure of an arm over its seeds."""
        return poslab.estimate(list(self.by_seed(label, figure).values()))

    def p_holm(self, figure: str, ends: set[str | None]) -> float | None:
        """The study's own corrected p of two arms on a figure, or of one and None: of it against 0."""
        tests = self.rows("claims", figure=figure)
        against = [None if pandas.isna(test["other"]) else test["other"] for test in tests]
        found = (
            test["p_holm"] for test, end in zip(tests, against, strict=True) if {test["arm"], end} == ends
        )
        return next(found, None)


class Studies:
    """The studies at hand, each read at most once."""

    def __init__(self, runs: Path, reports: Path) -> None:
        """`runs` holds run directories by study, `reports` archived records."""
        self.runs, self.reports = runs, reports
        self.unreadable: dict[str, str] = {}  # why a study that is there has no figures
        self._read: dict[str, Results | None] = {}

    def results(self, study: str) -> Results | None:
        """Return the figures of a study; None where it was not run, or cannot be read."""
        if study not in self._read:
            self._read[study] = self._load(study)
        return self._read[study]

    def too_small(self, study: str) -> tuple[StudyCommand, ...]:
        """The command that makes the study with enough seeds, where it has too few."""
        results = self.results(study)
        if results is None or results.seeds >= EXPLORATORY:
            return ()
        return tuple(command for command in ALL if command.study == study)

    def _load(self, study: str) -> Results | None:
        recorded = any((self.runs / study).glob("*/manifest.json"))
        if not recorded and not (self.reports / study / "records.tar.xz").is_file():
            return None
        try:
            return Results(poslab.read(study, runs=self.runs, reports=self.reports))
        except (poslab.ReportError, OSError) as error:
            self.unreadable[study] = plain(error, 300)
            return None


def multiple(column: str) -> float:
    """sliding_8x -> 8.0, of L"""
    return float(column.rpartition("_")[2].removesuffix("x"))


def name(multiple: float) -> str:
    """8.0 -> "8x": the end of a column's name."""
    return f"{multiple:g}x"


def compared(results: Results, figure: str, arm: str, against: str, comparisons: int = 1) -> Compared | None:
    """Return `arm` less `against`, or None where they share no seed or their losses do not mean the same.

    `comparisons` is how many the claim makes of those that the study does not test itself: their p values
    are multiplied by it (Bonferroni).
    """
    if arm not in results.arms or against not in results.arms:
        return None
    difference = results.study.difference(arm, against, figure)
    if difference is None:
        return None
    p = results.p_holm(figure, {arm, against})
    if p is None and difference.p is not None:
        p = min(1.0, comparisons * difference.p)
    return Compared(difference, p, read_difference(difference, p))


def read_difference(difference: Difference, p: float | None) -> Reading:
    """Lower or higher where the interval and the corrected p say so, with five seeds or more."""
    half = difference.half_width
    if half is None or p is None or difference.n < EXPLORATORY:
        return "open"
    if abs(difference.mean) <= half or p >= FALSE_ALARMS:
        return "open"
    return "lower" if difference.mean < 0 else "higher"


def gain_reading(results: Results, figure: str, arm: str) -> Compared | None:
    """An arm's figure against 0, such as its context gain, by the study's own test."""
    difference = above_zero(results.by_seed(arm, figure))
    if difference is None:
        return None
    p = results.p_holm(figure, {arm, None})
    return Compared(difference, p, read_difference(difference, p))


def above_zero(values: Mapping[int, float]) -> Difference | None:
    """By how much values by seed differ from 0."""
    return poslab.paired(values, dict.fromkeys(values, 0.0))


def time_ratio(
    results: Results, arm: str, against: str, share: float, comparisons: int
) -> tuple[Ratio, Reading] | None:
    """Tokens to the study's target of one arm over another's, and on which side of `share` that lies.

    An exact ratio needs its interval on one side and, as in `compared`, a corrected p; a bound has
    99 % and needs no correction for a few comparisons.
    """
    if arm not in results.arms or against not in results.arms:
        return None
    value = results.study.time_ratio(arm, against)
    if value is None:
        return None
    side: Reading = "open"
    if value.high is not None and value.high < share:
        side = "lower"
    elif value.low is not None and value.low > share:
        side = "higher"
    if value.kind == "exact":
        values, base = (results.by_seed(label, "tokens_to_target") for label in (arm, against))
        logs = {seed: math.log(values[seed] / base[seed] / share) for seed in values.keys() & base.keys()}
        test = above_zero(logs)
        p = None if test is None else test.p
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


def of_canon(results: Results, scheme: str, canon: bool) -> str | None:
    """The arm with this scheme, with Canon layers or without."""
    for label, config in results.configs.items():
        if config["pos"]["scheme"] == scheme and bool(config.get("model", {}).get("canon")) == canon:
            return str(label)
    return None


def half_context(results: Results, label: str) -> Difference | None:
    """What the targets of an arm lose, in nats, with L/2 tokens before them instead of L, by seed."""
    half, whole = (results.by_seed(label, figure) for figure in ("sliding_0.5x", "sliding_1x"))
    return poslab.paired(half, whole)


def uses_context(results: Results, label: str) -> bool:
    """Whether an arm is shown to lose by half of its context; else a longer one promises it nothing."""
    lost = half_context(results, label)
    return lost is not None and lost.half_width is not None and lost.mean - lost.half_width > NEEDED


def context_used(results: Results, label: str, named: str) -> str:
    """Return a sentence on how much of its context an arm uses, for verdicts on lengths past L."""
    lost, length = half_context(results, label), results.context_length
    if lost is None or length is None:
        return "How much context the models use was not measured in this study."
    change = interval(lost.mean, lost.half_width, 2, sign=True)
    found = f"With {length // 2} tokens of context instead of {length}, {named} loss changes by {change} nats"
    if uses_context(results, label):
        return f"{found}: these models use their context."
    return f"{found}: these models use hardly more than that, and have little to gain past L."


def setting(results: Results) -> str:
    """What was trained, for how long, on what, with how many seeds; stands beside every number of a study."""
    run, *_ = results.finished(results.reference)
    same = {label: runs[0] for label in results.arms if (runs := results.finished(label))}
    budgets: dict[int, str] = {}
    for label, first in sorted(same.items(), key=lambda item: int(item[1]["budget"])):
        if first["pos"] == run["pos"]:
            budgets.setdefault(first["budget"], results.per_parameter(label))
    model = results.configs[results.reference].get("model", {})
    parameters = run["parameters"]
    ratio = f" ({', '.join(budgets.values())} per parameter)" if parameters else ""
    shape = f"{model.get('layers')} layers of width {model.get('width')}" if model else ""
    if shape:
        shape += f" ({quantity(parameters)} parameters), " if parameters else ", "
    text = plain(run["data"] or "a text without a name", 60)
    length = f"L = {' to '.join(dict.fromkeys(map(str, (results.lengths[0], results.lengths[-1]))))}, "
    seeds = f"{results.seeds} seed" + "s" * (results.seeds != 1)
    schedules = {str(config["trainer"].get("schedule", "cosine")) for config in results.configs.values()}
    schedule = f"{' and '.join(sorted(schedules))} schedule"
    tasks = {str(config.get("objective", {}).get("kind")) for config in results.configs.values()}
    of_task = results.configs[results.reference].get("data", {}).get("source") == "none"
    rates = {
        results.finished(label)[0]["pos"]: _own_rate(config) for label, config in results.configs.items()
    }
    scaled = ", ".join(f"{pos} × {rate:g}" for pos, rate in rates.items() if rate != 1)
    rate_notes = f", rates of own parameters: {scaled}" if scaled else ""
    read = f"the tasks {', '.join(sorted(tasks))}, each by itself" if of_task else f"one text, {text}"
    tokens = f"{', '.join(map(quantity, budgets))} tokens{ratio} of {read}"
    return plain(f"{shape}{length}{tokens}, {schedule}{rate_notes}, {seeds}", 300)


def _own_rate(config: Mapping[str, Any]) -> float:
    """How many times the learning rate a scheme's own parameters train at."""
    return float(config["pos"].get("rate", 1.0) * config["trainer"].get("scheme_rate", 1.0))
