"""What a scheme costs for what it gives: loss against the speed of training."""

from poslab.analysis.curves import STEADY, Point, is_steady, point
from poslab.analysis.estimates import ArmFigures
from poslab.analysis.results import Results
from poslab.config.text import listing
from poslab.record.measures import name
from poslab.report import cells
from poslab.report.charts import LineChart, Series
from poslab.report.document import Section
from poslab.report.formatting import multiple as length_words
from poslab.report.formatting import quantity
from poslab.report.verdict import NAMED

AT_L, TESTED = "loss_by_speed", "tested_loss_by_speed"
FILES = (AT_L, TESTED)
TICKS = 4  # or so many of a kind of speed
SPEED = "tokens_per_second"
MANY = 24  # arms


def section(results: Results) -> Section:
    """Loss at L, and at the tested length, by training tokens a second: a mark an arm.

    Nothing where the machine was not the runs' alone, whose speeds then say nothing of the arms, nor of very
    many arms, which no figure tells apart.
    """
    if unsteady(results) or len(results.arms) > MANY:
        return Section("cost", "Cost and quality")
    tested = results.tested_multiple
    lengths = {AT_L: 1.0} | ({TESTED: tested} if tested > 1 else {})
    charts = [_chart(results, figure, k) for figure, k in lengths.items()]
    return Section(
        "cost", "Cost and quality", charts=tuple(chart for chart in charts if len(chart.series) > 1)
    )


def unsteady(results: Results) -> str:
    """Which arms trained at no steady speed, and what that means; "" where all did."""
    arms = [item.arm.label for item in results.arms if not all(map(is_steady, item.arm.finished))]
    if not arms:
        return ""
    return (
        f"Speeds are not compared: {listing(arms, NAMED)} trained at times at less than "
        f"{100 * STEADY:.0f} % of {'its' if len(arms) == 1 else 'their'} own speed, so other work used the "
        "machine meanwhile."
    )


def _chart(results: Results, figure: str, k: float) -> LineChart:
    loss = f"{cells.loss_family(results)}_{name(k)}"
    marks = [(number, item, _mark(item, loss)) for number, item in cells.arms(results)]
    series = tuple(Series(number, item.arm.label, (at,)) for number, item, at in marks if at is not None)
    speeds = [one.points[0].x for one in series]
    return LineChart(
        figure,
        f"Loss at {length_words(k)} by speed of training",
        f"Right and low is best. The loss is taken {cells.figure_place(loss)}. {cells.bars(results)} Speeds "
        "are of training alone, and compare only between runs that had their part of the machine alone.",
        "Training tokens a second",
        "Loss (nats per token)",
        10,
        tuple((x, quantity(x)) for x in _round_numbers(min(speeds), max(speeds))) if speeds else (),
        None,
        series,
    )


def _mark(item: ArmFigures, loss: str) -> Point | None:
    at, speed = item.figures.get(loss), item.mean(SPEED)
    return None if at is None or not speed else point(speed, at, {SPEED: speed})


def _round_numbers(low: float, high: float) -> list[float]:
    """Round numbers from low to high, some TICKS of them; the ends themselves where there are not two."""
    size = 10.0 ** len(str(int(high)))
    while size > 1e-9:
        for step in (size, size / 2, size / 5):
            first = -int(-low // step)
            ticks = [i * step for i in range(first, int(high / step) + 1)]
            if len(ticks) >= TICKS:
                return ticks
        size /= 10
    return sorted({low, high})
