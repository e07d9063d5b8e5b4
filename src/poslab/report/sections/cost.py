"""Cost and quality of a scheme: loss against training speed."""

from poslab.analysis.curves import STEADY, is_steady, point
from poslab.analysis.results import Results
from poslab.config.text import listing
from poslab.record.measures import name
from poslab.report import cells
from poslab.report.charts import LineChart, Series, decades
from poslab.report.document import Section
from poslab.report.formatting import multiple as length_words
from poslab.report.verdict import NAMED

SPEED = "tokens_per_second"


def section(results: Results) -> Section:
    """Return the loss at L, and at the tested length, by training speed, with one mark per arm.

    The section is empty if runs were slowed down, as by other work, because their speeds are then not
    comparable.
    """
    if unsteady(results):
        return Section("cost", "Cost and quality")
    tested = results.tested_multiple
    lengths = {1.0: "loss_by_speed"} | ({tested: "tested_loss_by_speed"} if tested > 1 else {})
    charts = [_chart(results, figure, k) for k, figure in lengths.items()]
    filled = tuple(chart for chart in charts if len(chart.series) > 1)
    return Section("cost", "Cost and quality", charts=filled)


def unsteady(results: Results) -> str:
    """Return a sentence on the arms with uneven speed, as when other work is running; "" without any."""
    arms = [item.arm.label for item in results.arms if not all(map(is_steady, item.arm.finished))]
    slow = f"ran at less than {100 * STEADY:.0f} % of its usual speed, as when other work is running"
    part = f"at least a tenth of the training of {listing(arms, NAMED)}"
    return f"Speeds are not compared: {part} {slow}." if arms else ""


def _chart(results: Results, figure: str, k: float) -> LineChart:
    loss = f"{cells.nats_family(results)}_{name(k)}"
    series = tuple(
        Series(item.arm.look, item.arm.label, (point(speed, at, {SPEED: speed}),))
        for item in results.arms
        if (at := item.figures.get(loss)) is not None and (speed := item.mean(SPEED))
    )
    return LineChart(
        figure,
        f"Loss at {length_words(k)} by training speed",
        f"Fast and low (bottom right) is best. The loss is taken {cells.figure_place(loss)}. "
        f"{cells.bars(results)} Speeds cover only training, and are comparable only between runs that shared "
        "their part of the machine with no other work.",
        "Training tokens per second",
        "Loss (nats per token)",
        series,
        decades(series),
        base=10,
    )
