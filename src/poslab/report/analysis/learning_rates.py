"""Learning rates tuned arm by arm: what each rate of the grid gave, and which one the losses choose.

Tuning runs have seeds and text of their own and are in no other figure.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from poslab.config.text import plain
from poslab.record.reader import Run
from poslab.report.analysis.arms import Arm, arm_settings, finished_at, labels
from poslab.report.analysis.statistics import Estimate, estimate


@dataclass(frozen=True)
class Choice:
    rate: float
    edge: bool  # whether it is the lowest or highest of the grid: the best may lie outside


def choose(losses: Mapping[float, Sequence[float | None]]) -> Choice | None:
    """The rate with the lowest mean loss over its seeds, the lower one of two that are equal.

    `losses` has a final validation loss a seed, None (or what is not finite) where the seed's run did not
    end with one. A rate with such a seed, or with none at all, is out. None where every rate is.
    """
    means = {
        rate: math.fsum(finite) / len(finite) for rate, values in losses.items() if (finite := _all(values))
    }
    if not means:
        return None
    rate = min(means, key=lambda rate: (means[rate], rate))
    return Choice(rate, rate in (min(losses), max(losses)))


def _all(values: Sequence[float | None]) -> list[float]:
    """The losses if every one of them is a number, else nothing."""
    numbers = [value for value in values if value is not None and math.isfinite(value)]
    return numbers if len(numbers) == len(values) else []


@dataclass(frozen=True)
class Tried:
    """One rate of an arm's grid, over the tuning seeds."""

    rate: float
    losses: tuple[float, ...]  # final validation losses of the seeds that have one
    without: tuple[str, ...]  # what became of the others: diverged, failed, missing, ...

    @property
    def seeds_started(self) -> int:
        """Seeds of the arm's tuning."""
        return len(self.losses) + len(self.without)

    @property
    def estimate(self) -> Estimate | None:
        """The mean loss; None unless every seed has one: the others alone would flatter the rate."""
        return None if self.without else estimate(self.losses)


@dataclass(frozen=True)
class Tuning:
    """The tuning runs of an arm, by rate."""

    label: str
    arm: int | None  # its number in the study; None where no such arm is compared
    runs: tuple[Run, ...]
    tried: tuple[Tried, ...]  # the grid, the lowest rate first
    choice: Choice | None  # None where no rate has a loss for every seed
    used: tuple[float, ...]  # the rates of the arm's runs that are compared

    @property
    def chosen(self) -> Tried | None:
        """What the chosen rate gave."""
        choice = self.choice
        return None if choice is None else next(one for one in self.tried if one.rate == choice.rate)

    @property
    def seeds(self) -> frozenset[int]:
        return frozenset(run.seed for run in self.runs)

    @property
    def other(self) -> tuple[float, ...]:
        """The rates of compared runs that are not the chosen one."""
        choice = self.choice
        return () if choice is None else tuple(r for r in self.used if not math.isclose(r, choice.rate))


def tunings(runs: Iterable[Run], arms: Sequence[Arm]) -> tuple[Tuning, ...]:
    """The tuning of each arm that was tuned, then of what is in no arm; superseded runs do not count."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        if run.readable and run.tunes and run.status != "superseded" and run.learning_rate is not None:
            groups.setdefault(_key(run), []).append(run)
    tunings = []
    for i, arm in enumerate(arms):
        mine = groups.get(_key(arm.runs[0]), [])
        if mine:
            used = sorted({run.learning_rate for run in arm.finished if run.learning_rate is not None})
            tunings.append(_tuning(arm.label, i, mine, used))
    taken = {_key(arm.runs[0]) for arm in arms}
    left = [group for key, group in groups.items() if key not in taken]
    known = {arm.label for arm in arms}
    for label, group in zip(labels(left, {group[0].study for group in left}), left, strict=True):
        tunings.append(_tuning(f"{label} (not compared)" if label in known else label, None, group, ()))
    return tuple(tunings)


def _tuning(label: str, arm: int | None, runs: Sequence[Run], used: Sequence[float]) -> Tuning:
    seeds = sorted({run.seed for run in runs})
    by_rate: dict[float, dict[int, Run]] = {}
    # Of one seed and rate made twice, by different code, the later one counts, diverged or not.
    for run in sorted(runs, key=lambda run: (run.status in ("done", "diverged"), finished_at(run))):
        assert run.learning_rate is not None
        by_rate.setdefault(run.learning_rate, {})[run.seed] = run
    counted = [by_rate[rate][seed] for rate in sorted(by_rate) for seed in sorted(by_rate[rate])]
    tried = tuple(_tried(rate, [by_rate[rate].get(seed) for seed in seeds]) for rate in sorted(by_rate))
    # Rates of another grid lack some of the seeds: they are no edge of the one that was chosen from.
    whole = [one for one in tried if "missing" not in one.without] or tried
    choice = choose({one.rate: (*one.losses, *(None for _ in one.without)) for one in whole})
    return Tuning(label, arm, tuple(counted), tried, choice, tuple(used))


def _tried(rate: float, runs: Sequence[Run | None]) -> Tried:
    """`runs` has one a seed, None where a seed was not made at this rate."""
    losses = tuple(loss for run in runs if (loss := _final(run)) is not None)
    return Tried(rate, losses, tuple(_fate(run) for run in runs if _final(run) is None))


def _final(run: Run | None) -> float | None:
    """The last validation loss of a finished run."""
    if run is None or run.status != "done" or not run.validations:
        return None
    loss = run.validations[-1].loss
    return loss if math.isfinite(loss) else None


def _fate(run: Run | None) -> str:
    """Why a seed has no loss."""
    if run is None:
        return "missing"
    return "not finite" if run.status == "done" else plain(run.status, 30)


def _key(run: Run) -> str:
    """The same for an arm's runs and for those that tune its learning rate."""
    sections = {name: value for name, value in arm_settings(run.config).items() if name != "evaluate"}
    trainer: Mapping[str, Any] = run.config["trainer"]
    sections["trainer"] = {name: value for name, value in trainer.items() if name != "learning_rate"}
    return json.dumps([run.study, sections], sort_keys=True, default=str)
