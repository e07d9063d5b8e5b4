"""Rates tuned arm by arm: what each place of the grid gave, and which one the losses choose.

A place is a learning rate with, where the scheme has parameters of its own, the multiple that these train at.

Tuning runs have seeds and text of their own and are in no other figure.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from poslab.analysis.arms import Arm, arm_settings, finished_at, labels
from poslab.analysis.statistics import Estimate, estimate
from poslab.config.text import plain
from poslab.record.reader import Rates, Run


@dataclass(frozen=True)
class Choice:
    rates: Rates
    edges: tuple[
        str, ...
    ]  # of its fields, those at the lowest or highest of the grid: the best may lie outside


def choose(losses: Mapping[Rates, Sequence[float | None]]) -> Choice | None:
    """The rates with the lowest mean loss over their seeds, the lower ones of two that are equal.

    `losses` has a final validation loss a seed, None (or what is not finite) where the seed's run did not
    end with one. Rates with such a seed, or with none at all, are out. None where all are.
    """
    means = {
        rates: math.fsum(finite) / len(finite) for rates, values in losses.items() if (finite := _all(values))
    }
    if not means:
        return None
    chosen = min(means, key=lambda rates: (means[rates], rates))
    grid = {name: {getattr(rates, name) for rates in losses} for name in Rates._fields}
    if len(grid["scheme_rate"]) == 1:  # it was not tuned
        del grid["scheme_rate"]
    edges = [name for name, tried in grid.items() if getattr(chosen, name) in (min(tried), max(tried))]
    return Choice(chosen, tuple(edges))


def _all(values: Sequence[float | None]) -> list[float]:
    """The losses if every one of them is a number, else nothing."""
    numbers = [value for value in values if value is not None and math.isfinite(value)]
    return numbers if len(numbers) == len(values) else []


@dataclass(frozen=True)
class Tried:
    """One place of an arm's grid, over the tuning seeds."""

    rates: Rates
    losses: tuple[float, ...]  # final validation losses of the seeds that have one
    without: tuple[str, ...]  # what became of the others: diverged, failed, missing, ...

    @property
    def seeds_started(self) -> int:
        """Seeds of the arm's tuning."""
        return len(self.losses) + len(self.without)

    @property
    def estimate(self) -> Estimate | None:
        """The mean loss; None unless every seed has one: the others alone would flatter the rates."""
        return None if self.without else estimate(self.losses)


@dataclass(frozen=True)
class Tuning:
    """The tuning runs of an arm, by their rates."""

    label: str
    arm: int | None  # its number in the study; None where no such arm is compared
    runs: tuple[Run, ...]
    tried: tuple[Tried, ...]  # the grid, the lowest rates first
    choice: Choice | None  # None where nothing has a loss for every seed
    used: tuple[Rates, ...]  # those of the arm's runs that are compared

    @property
    def chosen(self) -> Tried | None:
        """What the chosen rates gave."""
        choice = self.choice
        return None if choice is None else next(one for one in self.tried if one.rates == choice.rates)

    @property
    def seeds(self) -> frozenset[int]:
        return frozenset(run.seed for run in self.runs)

    @property
    def other(self) -> tuple[Rates, ...]:
        """The rates of compared runs that are not the chosen ones."""
        chosen = () if self.choice is None else self.choice.rates
        return tuple(used for used in self.used if chosen and not all(map(math.isclose, used, chosen)))


def scheme_rates(arms: Iterable[Arm]) -> dict[str, float]:
    """By label, how many times the learning rate a scheme's own parameters train at, where that is not 1."""
    rates = {}
    for arm in arms:
        for run in arm.finished[:1]:
            own = (run.config.get("pos") or {}).get("rate", 1.0)
            rate = own * (1.0 if run.rates is None else run.rates.scheme_rate)
            if rate != 1:
                rates[arm.label] = float(rate)
    return rates


def tunings(runs: Iterable[Run], arms: Sequence[Arm]) -> tuple[Tuning, ...]:
    """The tuning of each arm that was tuned, then of what is in no arm; superseded runs do not count."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        if run.readable and run.tunes and run.status != "superseded" and run.rates is not None:
            groups.setdefault(_key(run), []).append(run)
    tunings = []
    for i, arm in enumerate(arms):
        mine = groups.get(_key(arm.runs[0]), [])
        if mine:
            used = sorted({run.rates for run in arm.finished if run.rates is not None})
            tunings.append(_tuning(arm.label, i, mine, used))
    taken = {_key(arm.runs[0]) for arm in arms}
    left = [group for key, group in groups.items() if key not in taken]
    known = {arm.label for arm in arms}
    for label, group in zip(labels(left, {group[0].study for group in left}), left, strict=True):
        tunings.append(_tuning(f"{label} (not compared)" if label in known else label, None, group, ()))
    return tuple(tunings)


def _tuning(label: str, arm: int | None, runs: Sequence[Run], used: Sequence[Rates]) -> Tuning:
    seeds = sorted({run.seed for run in runs})
    by_rates: dict[Rates, dict[int, Run]] = {}
    # Of one seed and rates made twice, by different code, the later one counts, diverged or not.
    for run in sorted(runs, key=lambda run: (run.status in ("done", "diverged"), finished_at(run))):
        assert run.rates is not None
        by_rates.setdefault(run.rates, {})[run.seed] = run
    counted = [by_rates[rates][seed] for rates in sorted(by_rates) for seed in sorted(by_rates[rates])]
    tried = tuple(_tried(rates, [by_rates[rates].get(seed) for seed in seeds]) for rates in sorted(by_rates))
    # Rates of another grid lack some of the seeds: they are no edge of the one that was chosen from.
    whole = [one for one in tried if "missing" not in one.without] or tried
    choice = choose({one.rates: (*one.losses, *(None for _ in one.without)) for one in whole})
    return Tuning(label, arm, tuple(counted), tried, choice, tuple(used))


def _tried(rates: Rates, runs: Sequence[Run | None]) -> Tried:
    """`runs` has one a seed, None where a seed was not made at these rates."""
    losses = tuple(loss for run in runs if (loss := _final(run)) is not None)
    return Tried(rates, losses, tuple(_fate(run) for run in runs if _final(run) is None))


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
    """The same for an arm's runs and for those that tune its rates."""
    sections = {name: value for name, value in arm_settings(run.config).items() if name != "evaluate"}
    trainer: Mapping[str, Any] = run.config["trainer"]
    sections["trainer"] = {name: value for name, value in trainer.items() if name not in Rates._fields}
    return json.dumps([run.study, sections], sort_keys=True, default=str)
