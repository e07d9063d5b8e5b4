"""How the rates of each arm were chosen: a figure, a table and rates.csv."""

from poslab.analysis.curves import Point, point
from poslab.analysis.learning_rates import Tried, Tuning
from poslab.analysis.results import Results
from poslab.analysis.sheets import Row, rates_sheet
from poslab.analysis.statistics import Estimate
from poslab.config.text import listing, rate_text
from poslab.report.cells import looks, loss, named, rounded, significant, text, words
from poslab.report.charts import LineChart, Series
from poslab.report.document import Section
from poslab.report.formatting import DASH
from poslab.report.tables import Column, Table
from poslab.report.warnings import EDGE, rates_text

TICKS = 6
SENSITIVITY = {"below": "Next lower", "above": "Next higher", "spread": "Worst"}  # titles of columns


def section(results: Results) -> Section | None:
    """Return the figure and table of rates, or None if nothing was tuned."""
    if not results.tunings:
        return None
    tables, sheets = (rates_table(results),), {"rates": rates_sheet(results)}
    return Section("rates", "Learning rates", charts=charts(results), tables=tables, sheets=sheets)


def charts(results: Results) -> tuple[LineChart, ...]:
    """Return final validation loss by learning rate, with one line per arm; () without tuning."""
    numbers = looks(results)
    series = tuple(
        Series(numbers[tuning.label], tuning.label, points)
        for tuning in results.tunings
        if tuning.arm is not None and (points := _points(tuning))
    )
    if not series:
        return ()
    rates = sorted({point.x for line in series for point in line.points})
    every = -(-len(rates) // TICKS)
    several = max(len(tuning.seeds) for tuning in results.tunings) > 1
    bars = " Means over seeds with 95 % Student-t intervals." if several else ""
    schemes = " Each point has the best scheme rate." if _two_way(results) else ""
    chart = LineChart(
        "learning_rates",
        "Validation loss by learning rate",
        "Validation loss at the end of the runs that tune the learning rate. An arm takes the rate with the "
        f"lowest mean; a rate at which a run diverged or failed has no point.{schemes}{bars}",
        "Learning rate",
        "Validation loss (nats per token)",
        series,
        tuple((rate, rate_text(rate)) for rate in rates[::-1][::every][::-1]),
        base=10,
    )
    return (chart,)


def _points(tuning: Tuning) -> tuple[Point, ...]:
    best: dict[float, tuple[Estimate, Tried]] = {}  # by learning rate
    for tried in tuning.tried:
        at, rate = tried.estimate, tried.rates.learning_rate
        if at is not None and (rate not in best or at.mean < best[rate][0].mean):
            best[rate] = at, tried
    return tuple(
        point(rate, at, {**tried.rates._asdict(), "chosen": tried is tuning.chosen})
        for rate, (at, tried) in best.items()
    )


def _two_way(results: Results) -> bool:
    """Return whether scheme rates were tuned as well."""
    return any(len({tried.rates.scheme_rate for tried in item.tried}) > 1 for item in results.tunings)


def rates_table(results: Results) -> Table:
    """Return one row per arm with the chosen rate, its grid, and whether the grid was wide enough."""
    columns = (
        named(looks(results)),
        Column("rate", "Chosen rate", rounded(lambda rate: DASH if rate is None else rate_text(rate))),
        *([Column("scheme_rate", "Scheme rate", text)] if _two_way(results) else []),
        words("edge", "Edge"),
        Column("loss", "Validation loss", loss),
        *(Column(key, title, significant(3), "Nats above it") for key, title in SENSITIVITY.items()),
        Column("seeds", "Seeds", text),
        words("grid", "Grid"),
        words("without", "Without a loss"),
    )
    caption = (
        "The rate with the lowest mean loss over all seeds; tuning runs count in no other table. Nats above "
        "it: the loss minus this one, at the next lower, next higher and worst rate of the grid."
    )
    if _two_way(results):
        caption += (
            " The scheme rate (trainer.scheme_rate), such as 3 in 0.002 x 3, multiplies the learning rate of "
            "the scheme's own parameters."
        )
    records = list(map(_record, results.tunings))
    return Table("Learning rates", caption, columns, records, ("rates.csv",))


def _record(tuning: Tuning) -> Row:
    """Return the row of one arm, which combines its rows of rates.csv."""
    chosen = tuning.chosen
    at = None if chosen is None else chosen.estimate
    return {
        "arm": tuning.label,
        "rate": None if chosen is None else chosen.rates.learning_rate,
        "scheme_rate": None if chosen is None else f"{chosen.rates.scheme_rate:g}",
        "edge": EDGE if tuning.choice is not None and tuning.choice.edges else None,
        "loss_mean": None if at is None else at.mean,
        "loss_half_width": None if at is None else at.half_width,
        "below": tuning.beside(-1),
        "above": tuning.beside(1),
        "spread": tuning.spread,
        "seeds": len(tuning.seeds),
        "grid": ", ".join(rates_text(tried.rates) for tried in tuning.tried),
        "without": "; ".join(fates for tried in tuning.tried if (fates := _without(tried))),
    }


def _without(tried: Tried) -> str:
    """Return why a rate has no loss, such as "diverged at 0.008 (1 of 2 seeds)"."""
    fates = dict.fromkeys(tried.without)
    if not fates:
        return ""
    part = f" ({len(tried.without)} of {tried.seeds_started} seeds)" if tried.seeds_started > 1 else ""
    return f"{listing(list(fates))} at {rates_text(tried.rates)}{part}"
