"""Extrapolation's headline: what a longer context is worth and what short windows cost, by length."""

from collections.abc import Mapping

from poslab.record.measures import Value, name
from poslab.record.reader import Run
from poslab.report.analysis.results import Results
from poslab.report.charts import LineChart, Series, Values, bars, points
from poslab.report.formatting import multiple


def gain_charts(results: Results) -> list[LineChart]:
    """Context gain and early-token curse by length, where a length past L was measured."""
    gain = (
        "The sliding-window loss at L less that at the longer length, on the same text: above 0, the longer "
        "context helps; below 0, it harms. 0 at L."
    )
    curse = (
        "What non-overlapping windows lose over sliding ones on the text that both score: tokens near a "
        "window's start have little context. A falling loss in non-overlapping windows may be this alone."
    )
    charts = [
        _by_length(results, "context_gain", "Context gain", gain),
        _by_length(results, "early_token_curse", "Early-token curse", curse),
    ]
    return [chart for chart in charts if any(p.x > 1 for series in chart.series for p in series.points)]


def _by_length(results: Results, family: str, title: str, caption: str) -> LineChart:
    length = "" if results.context_length is None else f" (L = {results.context_length:,})"
    series = [
        Series(i, item.arm.label, points([_values(results, family, *one) for one in found]))
        for i, item in enumerate(results.arms)
        if (found := list(zip(item.arm.finished, item.rows, strict=True)))
    ]
    return LineChart(
        f"{family}_by_length",
        f"{title} by evaluation length",
        f"{caption} {bars(results)}",
        f"Evaluation length{length}",
        f"{title} (nats per token)",
        2,
        tuple((k, multiple(k)) for k in results.multiples),
        1.0,
        tuple(one for one in series if one.points),
    )


def _values(results: Results, family: str, run: Run, row: Mapping[str, Value]) -> Values:
    return {
        (k, (("multiple", k), ("length", round(k * run.context_length)))): value
        for k in results.multiples
        if isinstance(value := row.get(f"{family}_{name(k)}"), float)
    }
