"""The studies that judge claims: their figures, their settings, and how to run them.

A study is read from runs/ or from the records archived beside its report. A difference that the study itself
tests keeps the study's corrected p value. Any other is corrected over the comparisons that the claim makes.
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

EXPLORATORY = 5  # with fewer seeds nothing is decided
FALSE_ALARMS = 0.05  # a difference with this p value or a larger one is noise


@dataclass(frozen=True)
class StudyCommand:
    """A study that judges a claim, and the command that runs it."""

    study: str
    arguments: str
    runs: int
    minutes: int = 2  # for a run of the default model on two CPU cores

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
    """The difference of two arms on one figure, and the conclusion that it allows."""

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
    """A study that was read: its arms, its tested figure, and the rows of its tables."""

    def __init__(self, study: poslab.Study) -> None:
        self.study = study
        arms = self.rows("arms")
        self.arms = {str(row["arm"]): row for row in arms if row["seeds_finished"]}
        self.reference = str(next(row["arm"] for row in arms if row["reference"]))
        self.seeds = max(int(row["seeds_finished"]) for row in self.arms.values())
        self.lengths = sorted({int(row["context_length"]) for row in self.arms.values()})
        self.context_length = self.lengths[0] if len(self.lengths) == 1 else None
        matches = [re.fullmatch(r"sliding_([\d.]+)x", str(column)) for column in study.runs]
        self.multiples = tuple(float(match[1]) for match in matches if match)  # measured lengths over L
        facts = {str(row["key"]): str(row["value"]) for row in self.rows("facts")}
        self.primary = facts.get("primary")  # the figure that the study tests, such as sliding_8x

    @cached_property
    def configs(self) -> dict[str, Any]:
        """The configuration of each arm."""
        return {label: self.study.config(label) for label in self.arms}

    def rows(self, table: str, **values: Hashable) -> list[dict[Hashable, Any]]:
        """Return the rows of a table with these values; none if the study has no such table."""
        frame = pandas.DataFrame(self.study.tables.get(table, {}))
        for column, value in values.items():
            if column in frame:
                frame = frame[frame[column] == value]
        records: list[dict[Hashable, Any]] = frame.to_dict("records")
        return records

    def finished(self, label: str) -> list[dict[Hashable, Any]]:
        """Return the finished runs of an arm, without the trials of its learning rates."""
        return self._finished.get(label, [])

    @cached_property
    def _finished(self) -> dict[str, list[dict[Hashable, Any]]]:
        by_arm: dict[str, list[dict[Hashable, Any]]] = {}
        for run in self.rows("summary", status="done"):
            if run["part"] != "tuning":
                by_arm.setdefault(str(run["arm"]), []).append(run)
        return by_arm

    def by_steps(self, pos: str) -> dict[int, str]:
        """Return the arms with this option of `pos` by training steps; the first if several have as many."""
        arms: dict[int, str] = {}
        for label, config in self.configs.items():
            if self.finished(label)[0]["pos"] == pos:
                arms.setdefault(config["trainer"]["max_steps"], label)
        return arms

    def per_parameter(self, label: str) -> str:
        """Return the training tokens per parameter of an arm, as text."""
        run, *_ = self.finished(label)
        return number(run["budget"] / run["parameters"], 2) if run["parameters"] else "?"

    def by_seed(self, label: str, figure: str) -> dict[int, float]:
        """Return a figure of an arm by seed; empty if the arm or the figure is missing."""
        known = label in self.arms and figure in self.study.runs
        return self.study.by_seed(label, figure) if known else {}

    def estimate(self, label: str, figure: str) -> Estimate | None:
        """Return the estimate of an arm's figure over its seeds."""
        return poslab.estimate(list(self.by_seed(label, figure).values()))

    def p_holm(self, figure: str, ends: set[str | None]) -> float | None:
        """Return the study's corrected p of two arms on a figure; an arm and None: of that arm against 0."""
        tests = self.rows("claims", figure=figure)
        against = [None if pandas.isna(test["other"]) else test["other"] for test in tests]
        values = (
            test["p_holm"] for test, end in zip(tests, against, strict=True) if {test["arm"], end} == ends
        )
        return next(values, None)


class Studies:
    """The available studies, each read at most once."""

    def __init__(self, runs: Path, reports: Path) -> None:
        """Read run directories from `runs`/<study>, archived records from `reports`/<study>."""
        self.runs, self.reports = runs, reports
        self.unreadable: dict[str, str] = {}  # why an existing study has no figures
        self._read: dict[str, Results | None] = {}

    def results(self, study: str) -> Results | None:
        """Return the figures of a study, or None if it was not run or cannot be read."""
        if study not in self._read:
            self._read[study] = self._load(study)
        return self._read[study]

    def too_small(self, study: str) -> tuple[StudyCommand, ...]:
        """Return the command that runs the study with enough seeds, if it has too few."""
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
    """Return the multiple of L in the name of a figure: sliding_8x -> 8.0."""
    return float(column.rpartition("_")[2].removesuffix("x"))


def name(multiple: float) -> str:
    """Return the end of a column's name for a multiple of L: 8.0 -> "8x"."""
    return f"{multiple:g}x"


def compared(results: Results, figure: str, arm: str, against: str, comparisons: int = 1) -> Compared | None:
    """Return `arm` less `against`, or None if they share no seed or their losses do not compare.

    `comparisons` is the number of comparisons of the claim that the study does not test itself: their p
    values are multiplied by it (Bonferroni).
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
    """Return lower or higher if interval and corrected p agree and there are at least five seeds."""
    half = difference.half_width
    if half is None or p is None or difference.n < EXPLORATORY:
        return "open"
    if abs(difference.mean) <= half or p >= FALSE_ALARMS:
        return "open"
    return "lower" if difference.mean < 0 else "higher"


def gain_reading(results: Results, figure: str, arm: str) -> Compared | None:
    """Return an arm's figure against 0, such as its context gain, by the study's own test."""
    difference = above_zero(results.by_seed(arm, figure))
    if difference is None:
        return None
    p = results.p_holm(figure, {arm, None})
    return Compared(difference, p, read_difference(difference, p))


def above_zero(values: Mapping[int, float]) -> Difference | None:
    """Return the difference of values by seed from 0."""
    return poslab.paired(values, dict.fromkeys(values, 0.0))


def time_ratio(
    results: Results, arm: str, against: str, share: float, comparisons: int
) -> tuple[Ratio, Reading] | None:
    """Return one arm's tokens to the study's target over another's, and on which side of `share` it lies.

    For an exact ratio the interval has to be on one side and, as in `compared`, the corrected p below 0.05.
    A bound has a confidence of 99 %, which needs no correction for a few comparisons.
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
    """Format a ratio with its interval, such as ×1.29 [1.24, 1.34], or as a bound."""
    if value.kind == "at_least":
        return f"> ×{value.low:.2f}"
    if value.kind == "at_most":
        return f"< ×{value.high:.2f}"
    if value.mean is None:
        return "not known"
    return f"×{value.mean:.2f}" + ("" if value.low is None else f" [{value.low:.2f}, {value.high:.2f}]")


def of_canon(results: Results, scheme: str, canon: bool) -> str | None:
    """Return the arm with this scheme, with or without Canon layers; None if there is none."""
    for label, config in results.configs.items():
        if config["pos"]["scheme"] == scheme and bool(config.get("model", {}).get("canon")) == canon:
            return str(label)
    return None


def half_context(results: Results, label: str) -> Difference | None:
    """Return how many nats an arm loses with L/2 tokens of context instead of L, paired by seed."""
    half, whole = (results.by_seed(label, figure) for figure in ("sliding_0.5x", "sliding_1x"))
    return poslab.paired(half, whole)


def uses_context(results: Results, label: str) -> bool:
    """Return whether an arm loses with half of its context; if not, a longer one cannot help it much."""
    lost = half_context(results, label)
    return lost is not None and lost.half_width is not None and lost.mean - lost.half_width > NEEDED


def context_used(results: Results, label: str, named: str) -> str:
    """Return a sentence on how much context an arm uses, for verdicts on lengths past L."""
    lost, length = half_context(results, label), results.context_length
    if lost is None or length is None:
        return "How much context the models use was not measured in this study."
    change = interval(lost.mean, lost.half_width, 2, sign=True)
    start = f"With {length // 2} tokens of context instead of {length}, {named} loss changes by {change} nats"
    if uses_context(results, label):
        return f"{start}: these models use their context."
    return f"{start}: these models use hardly more than that, and have little to gain past L."


def setting(results: Results) -> str:
    """Return model, length, tokens, text, schedule and seeds as the text beside every number of a study."""
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
    """Return the learning rate of a scheme's own parameters, over the general one."""
    return float(config["pos"].get("rate", 1.0) * config["trainer"].get("scheme_rate", 1.0))
