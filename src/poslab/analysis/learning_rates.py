"""Rates tuned arm by arm: the loss at each point of the grid, and the rates with the lowest loss.

A point is a learning rate and, if the scheme has parameters of its own, the multiple of it used for these.
Tuning runs have separate seeds and text, and count in no other figure.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from poslab.analysis.arms import Arm, arm_settings, finished_at, labels
from poslab.analysis.statistics import Estimate, estimate, grouped
from poslab.config.text import plain
from poslab.record.reader import Rates, Run


@dataclass(frozen=True)
class Choice:
    rates: Rates
    edges: tuple[str, ...]  # its fields at an end of the grid: the best value may lie outside


def choose(losses: Mapping[Rates, Sequence[float | None]]) -> Choice | None:
    """Return the rates with the lowest mean loss over their seeds; of equal losses, the lower rates.

    `losses` has a final validation loss per seed, None or not finite if the seed's run did not end with one.
    Rates with such a seed, or without seeds, are excluded. None if all rates are.
    """
    filled = {rates: [math.nan if loss is None else loss for loss in nll] for rates, nll in losses.items()}
    means = {rates: fmean(nll) for rates, nll in filled.items() if nll and all(map(math.isfinite, nll))}
    if not means:
        return None
    chosen = min(means, key=lambda rates: (means[rates], rates))
    grid = {name: {getattr(rates, name) for rates in losses} for name in Rates._fields}
    if len(grid["scheme_rate"]) == 1:  # it was not tuned
        del grid["scheme_rate"]
    edges = [name for name, values in grid.items() if getattr(chosen, name) in (min(values), max(values))]
    return Choice(chosen, tuple(edges))


@dataclass(frozen=True)
class Tried:
    """One point of an arm's grid, over the tuning seeds."""

    rates: Rates
    losses: tuple[float, ...]  # final validation losses of the seeds that have one
    without: tuple[str, ...]  # how the others ended: diverged, failed, missing, ...

    @property
    def seeds_started(self) -> int:
        """The number of tuning seeds."""
        return len(self.losses) + len(self.without)

    @property
    def estimate(self) -> Estimate | None:
        """The mean loss; None unless every seed has one: a mean of the rest would flatter the rates."""
        return None if self.without else estimate(self.losses)


@dataclass(frozen=True)
class Tuning:
    """The tuning runs of an arm, by their rates."""

    label: str
    arm: int | None  # its number in the study; None if no such arm is compared
    runs: tuple[Run, ...]
    tried: tuple[Tried, ...]  # the grid, the lowest rates first
    choice: Choice | None  # None if no point has a loss for every seed
    used: tuple[Rates, ...]  # the rates of the arm's compared runs

    @property
    def chosen(self) -> Tried | None:
        """The point with the chosen rates."""
        choice = self.choice
        return None if choice is None else next(point for point in self.tried if point.rates == choice.rates)

    @property
    def spread(self) -> float | None:
        """The highest mean loss of the grid less the lowest, in nats; None without a mean loss."""
        means = [point.estimate.mean for point in self.tried if point.estimate is not None]
        return max(means) - min(means) if means else None

    def beside(self, step: int) -> float | None:
        """Return the loss `step` learning rates up the grid, less that of the chosen rates, in nats.

        The scheme rate is the chosen one. None past the end of the grid, or if a seed has no loss there.
        """
        if self.chosen is None or (best := self.chosen.estimate) is None:
            return None
        same = [point for point in self.tried if point.rates.scheme_rate == self.chosen.rates.scheme_rate]
        index = same.index(self.chosen) + step  # the grid has the lowest rates first
        loss = same[index].estimate if 0 <= index < len(same) else None
        return None if loss is None else loss.mean - best.mean

    @property
    def seeds(self) -> frozenset[int]:
        return frozenset(run.seed for run in self.runs)

    @property
    def unchosen(self) -> tuple[Rates, ...]:
        """The rates of compared runs that differ from the chosen ones."""
        chosen = () if self.choice is None else self.choice.rates
        return tuple(used for used in self.used if chosen and not all(map(math.isclose, used, chosen)))


def scheme_rates(arms: Iterable[Arm]) -> dict[str, float]:
    """Return, by arm, the rate of a scheme's own parameters over the learning rate, if it is not 1."""
    firsts = [(arm.label, arm.finished[0]) for arm in arms if arm.finished]
    fixed = {label: (run.config.get("pos") or {}).get("rate", 1.0) for label, run in firsts}
    tuned = {label: 1.0 if run.rates is None else run.rates.scheme_rate for label, run in firsts}
    return {label: float(fixed[label] * tuned[label]) for label in fixed if fixed[label] * tuned[label] != 1}


def tunings(runs: Iterable[Run], arms: Sequence[Arm]) -> tuple[Tuning, ...]:
    """Return the tuning of each arm, then of configurations without an arm; ignore superseded runs."""
    known = (run for run in runs if run.readable and run.tunes and run.status != "superseded")
    groups = grouped((_key(run), run) for run in known if run.rates is not None)
    tunings = []
    for i, arm in enumerate(arms):
        tuned = groups.get(_key(arm.runs[0]), [])
        if tuned:
            used = sorted({run.rates for run in arm.finished if run.rates is not None})
            tunings.append(_tuning(arm.label, i, tuned, used))
    taken = {_key(arm.runs[0]) for arm in arms}
    rest = [group for key, group in groups.items() if key not in taken]
    compared = {arm.label for arm in arms}
    for label, group in zip(labels(rest, {group[0].study for group in rest}), rest, strict=True):
        tunings.append(_tuning(f"{label} (not compared)" if label in compared else label, None, group, ()))
    return tuple(tunings)


def _tuning(label: str, arm: int | None, runs: Sequence[Run], used: Sequence[Rates]) -> Tuning:
    seeds = sorted({run.seed for run in runs})
    by_rates: dict[Rates, dict[int, Run]] = {}
    # Of two runs with the same seed and rates (from different code) the later counts, diverged or not.
    for run in sorted(runs, key=lambda run: (run.status in ("done", "diverged"), finished_at(run))):
        assert run.rates is not None
        by_rates.setdefault(run.rates, {})[run.seed] = run
    counted = [by_rates[rates][seed] for rates in sorted(by_rates) for seed in sorted(by_rates[rates])]
    points = []
    for rates in sorted(by_rates):
        ends = [_end(by_rates[rates].get(seed)) for seed in seeds]
        losses = tuple(end for end in ends if isinstance(end, float))
        points.append(Tried(rates, losses, tuple(end for end in ends if isinstance(end, str))))
    # Rates from another grid lack some of the seeds: they are no edge of the grid that was searched.
    whole = [point for point in points if "missing" not in point.without] or points
    choice = choose({point.rates: (*point.losses, *(None for _ in point.without)) for point in whole})
    return Tuning(label, arm, tuple(counted), tuple(points), choice, tuple(used))


def _end(run: Run | None) -> float | str:
    """Return the last validation loss of a seed's run, or the reason that it has none."""
    if run is None:
        return "missing"
    if run.status != "done":
        return plain(run.status, 30)
    loss = run.validations[-1].loss if run.validations else math.nan
    return loss if math.isfinite(loss) else "not finite"


def _key(run: Run) -> str:
    """Return a key that is equal for an arm's runs and for the runs that tune its rates."""
    sections = {name: value for name, value in arm_settings(run.config).items() if name != "evaluate"}
    trainer: Mapping[str, Any] = run.config["trainer"]
    sections["trainer"] = {name: value for name, value in trainer.items() if name not in Rates._fields}
    return json.dumps([run.study, sections], sort_keys=True, default=str)
