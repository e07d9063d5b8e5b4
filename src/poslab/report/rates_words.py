"""How the learning rates were chosen, as a figure, a table, a sheet and sentences."""

import json
from collections.abc import Sequence

from poslab.config.text import listing, plain, rate_text
from poslab.record.measures import Value
from poslab.record.reader import Run
from poslab.report.analysis.learning_rates import Tried, Tuning
from poslab.report.analysis.results import Results
from poslab.report.charts import LineChart, Point, Series
from poslab.report.formatting import DASH, interval
from poslab.report.tables import Cell, Column, Table

EDGE = "at the grid's edge: widen it"
TICKS = 6


def rates_chart(results: Results) -> list[LineChart]:
    """Final validation loss by learning rate, a line an arm; nothing where nothing was tuned."""
    series = tuple(
        Series(one.arm, one.label, points)
        for one in results.tunings
        if one.arm is not None and (points := _points(one))
    )
    if not series:
        return []
    rates = sorted({point.x for one in series for point in one.points})
    every = -(-len(rates) // TICKS)
    several = max(len(one.seeds) for one in results.tunings) > 1
    bars = " Means over seeds with 95 % Student-t intervals." if several else ""
    chart = LineChart(
        "learning_rates",
        "Validation loss by learning rate",
        "Validation loss at the end of the runs that only tune the learning rate. An arm takes the rate with "
        f"the lowest mean; a rate at which a run diverged or failed has no point.{bars}",
        "Learning rate",
        "Validation loss (nats per token)",
        10,
        tuple((rate, rate_text(rate)) for rate in rates[::-1][::every][::-1]),
        None,
        series,
    )
    return [chart]


def _points(tuning: Tuning) -> tuple[Point, ...]:
    found = []
    for tried in tuning.tried:
        at = tried.estimate
        if at is not None:
            keys: dict[str, Value] = {"learning_rate": tried.rate, "chosen": tried is tuning.chosen}
            found.append(Point(tried.rate, at.n, at.mean, at.half_width, at.lowest, at.highest, keys))
    return tuple(found)


def rates_table(results: Results) -> Table | None:
    """A row an arm: the rate that was chosen, from which grid, and whether the grid was wide enough."""
    if not results.tunings:
        return None
    columns = (
        Column("Arm", number=False),
        Column("Chosen rate"),
        Column("Edge", number=False),
        Column("Validation loss"),
        Column("Seeds"),
        Column("Grid", number=False),
        Column("Without a loss", number=False),
    )
    rows = []
    for one in results.tunings:
        chosen = one.chosen
        at = None if chosen is None else chosen.estimate
        cells = (
            Cell(one.label, arm=one.arm),
            Cell(DASH if chosen is None else rate_text(chosen.rate)),
            Cell(EDGE if one.choice is not None and one.choice.edge else DASH),
            Cell(DASH if at is None else interval(at.mean, at.half_width)),
            Cell(str(len(one.seeds))),
            Cell(", ".join(rate_text(tried.rate) for tried in one.tried)),
            Cell("; ".join(said for tried in one.tried if (said := _without(tried))) or DASH),
        )
        rows.append(cells)
    caption = (
        "Chosen for each arm by the lowest mean validation loss at the end of its tuning runs, which count "
        "in no other table. A rate at which the run of any seed has no loss is out."
    )
    return Table("rates", "Learning rates", caption, columns, tuple(rows), "rates.csv")


def _without(tried: Tried) -> str:
    """diverged at 0.008 (1 of 2 seeds)"""
    fates = dict.fromkeys(tried.without)
    if not fates:
        return ""
    some = f" ({len(tried.without)} of {tried.asked} seeds)" if tried.asked > 1 else ""
    return f"{listing(list(fates))} at {rate_text(tried.rate)}{some}"


def rates_sheet(results: Results) -> tuple[list[str], list[dict[str, Value]]]:
    """rates.csv: a row an arm and rate. The loss is empty unless every seed has one."""
    columns = ["study", "arm", "learning_rate", "seeds", "n", "diverged", "without_loss", "mean"]
    columns += ["half_width", "lowest", "highest", "chosen", "edge", "compared"]
    rows: list[dict[str, Value]] = []
    for one in results.tunings:
        for tried in one.tried:
            at = tried.estimate
            chosen = tried is one.chosen
            row: dict[str, Value] = {
                "study": one.runs[0].study,
                "arm": one.label,
                "learning_rate": tried.rate,
                "seeds": tried.asked,
                "n": len(tried.losses),
                "diverged": tried.without.count("diverged"),
                "without_loss": len(tried.without),
                "chosen": str(chosen).lower(),
                "edge": str(chosen and one.choice is not None and one.choice.edge).lower(),
                "compared": str(tried.rate in one.used).lower(),
            }
            if at is not None:
                row |= {"mean": at.mean, "half_width": at.half_width}
                row |= {"lowest": at.lowest, "highest": at.highest}
            rows.append(row)
    return columns, rows


def rates_warnings(results: Results) -> list[str]:
    """What is wrong with how the rates were chosen, or with what was then compared."""
    found = []
    for one in results.tunings:
        if one.arm is None:
            found.append(f"The learning rate of {one.label} was tuned, and no arm of that kind is compared.")
        if one.choice is None:
            found.append(f"No learning rate of {one.label} has a loss for every seed: none is chosen.")
        elif one.choice.edge:
            chosen = rate_text(one.choice.rate)
            found.append(f"The learning rate chosen for {one.label}, {chosen}, is {EDGE}.")
        if one.other and one.choice is not None:
            used, chosen = listing([rate_text(rate) for rate in one.other]), rate_text(one.choice.rate)
            found.append(f"{one.label} is compared at the learning rate {used}; its tuning chose {chosen}.")
        unlike = [name for name, values in _made(one.runs).items() if len(values) > 1]
        if unlike:
            found.append(
                f"The tuning runs of {one.label} do not have the same {listing(unlike)}: "
                "their losses do not compare."
            )
    tuned = {one.arm for one in results.tunings}
    untuned = [item.arm.label for i, item in enumerate(results.arms) if tuned and i not in tuned]
    if untuned:
        found.append(f"No runs tune the learning rate of {listing(untuned)}.")
    if _shared_seeds(results):
        seeds = listing([str(seed) for seed in _shared_seeds(results)])
        found.append(
            f"Tuning and comparison share seeds ({seeds}): the rates fit the runs that are compared."
        )
    return found


def _made(runs: Sequence[Run]) -> dict[str, set[str]]:
    return {
        "data": {f"{run.data_fingerprint} {run.vocabulary}" for run in runs},
        "code": {f"{run.manifest.code} {run.manifest.code_parts}" for run in runs},
        "validation": {json.dumps(run.config.get("evaluate"), sort_keys=True, default=str) for run in runs},
    }


def _shared_seeds(results: Results) -> list[int]:
    compared = {(run.study, run.seed) for run in results.finished}
    tuning = {(run.study, run.seed) for one in results.tunings for run in one.runs}
    return sorted({seed for _, seed in compared & tuning})


def rates_remarks(results: Results) -> list[str]:
    """Where the learning rates come from."""
    if not results.tunings:
        same = {run.config["trainer"].get("learning_rate") for run in results.finished}
        if len(same) == 1 and len(results.arms) > 1:
            return [f"One learning rate for every arm ({plain(same.pop(), 20)}), not tuned arm by arm."]
        return []
    tuned = [one for one in results.tunings if one.arm is not None]
    if not tuned:
        return []
    whose = "each arm" if len(tuned) == len(results.arms) else f"{len(tuned)} of {len(results.arms)} arms"
    rates, seeds = _range([len(one.tried) for one in tuned]), _range([len(one.seeds) for one in tuned])
    own = "" if _shared_seeds(results) else " and text of their own"
    return [
        f"Learning rate chosen for {whose} from {rates} {'rate' if rates == '1' else 'rates'} "
        f"on {seeds} {'seed' if seeds == '1' else 'seeds'}{own}."
    ]


def _range(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"
