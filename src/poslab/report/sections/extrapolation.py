"""Past the training length: what a longer context is worth, and loss by evaluation length and by position."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from poslab.analysis.comparisons import comparable
from poslab.analysis.curves import Point, Values, by_length, by_position, in_bits, points, row_by_length
from poslab.analysis.protocols import OTHER
from poslab.analysis.results import Results
from poslab.record.reader import Run
from poslab.report.cells import arms, bars, loss_family, training_length
from poslab.report.charts import Chart, LineChart, PanelChart, Series, octaves
from poslab.report.document import Section
from poslab.report.formatting import count, multiple

FILES = (
    "sliding_loss_by_length_by_attention",
    "loss_by_length_by_attention",
    "context_gain_by_length",
    "early_token_curse_by_length",
    "bits_per_byte_by_length",
    "loss_by_length",
    "sliding_bits_per_byte_by_length",
    "sliding_loss_by_length",
    "loss_by_position",
    "loss_by_position_less_reference",
)


PROTOCOLS = {"sliding": "sliding", "loss": "non_overlapping"}  # by the family of their losses


def section(results: Results) -> Section:
    """Loss by length in the protocol that is not tested and by position, gain and curse by length."""
    other = _loss_by_length(results, OTHER[loss_family(results)], in_bits(results.finished))
    losses = (other, _loss_by_position(results), _position_less_reference(results))
    by_attention = _by_attention(results)
    # Where it is not the first figure.
    tested = tested_chart(results) if results.is_about_learning else None
    shown: list[Chart] = [] if tested is None else [tested]
    shown += [*by_attention, *(one for one in losses if one.series)]
    return Section(
        "lengths",
        "By length and by position",
        charts=(*shown, *_gains(results)),
    )


def tested_chart(results: Results) -> LineChart | None:
    """Loss by length in the protocol that is tested, or None where no run has it."""
    chart = _loss_by_length(results, loss_family(results), bits=False)
    return chart if chart.series else None


def _by_attention(results: Results) -> list[PanelChart]:
    """The tested chart once more with a panel an attention, where there are several."""
    tested = tested_chart(results)
    attention_of = {item.arm.label: item.arm.attention for item in results.arms}
    attentions = dict.fromkeys(attention_of.values())
    if tested is None or len(attentions) < 2:
        return []
    name = f"{tested.name}_by_attention"
    panels = [
        replace(
            tested,
            name=name,
            title=one,
            series=tuple(s for s in tested.series if attention_of[s.label] == one),
        )
        for one in attentions
    ]
    return [
        PanelChart(
            name,
            f"{tested.title}, by attention",
            f"The first figure again, each attention by itself. {bars(results)}",
            tuple(panel for panel in panels if panel.series),
            tuple((series.arm, series.label) for series in tested.series),
            "Arms",
            tested.rows,
        )
    ]


def _gains(results: Results) -> list[LineChart]:
    """Context gain and early-token curse by length, where a length past L was measured."""
    gain = (
        "The sliding-window loss at L less that at the longer length, on the same text: above 0, the longer "
        "context helps; below 0, it harms. 0 at L."
    )
    curse = (
        "What non-overlapping windows lose over sliding ones on the text that both score: tokens near a "
        "window's start have little context. A falling loss in non-overlapping windows may be this alone."
    )
    both = [
        _by_length(results, "context_gain", "Context gain", gain),
        _by_length(results, "early_token_curse", "Early-token curse", curse),
    ]
    return [chart for chart in both if any(p.x > 1 for series in chart.series for p in series.points)]


def _by_length(results: Results, family: str, title: str, caption: str) -> LineChart:
    """A figure of the rows of the runs by the multiple of L in its column's name."""
    rows = {run.name: row for run, row in zip(results.runs, results.rows, strict=True)}
    return LineChart(
        f"{family}_by_length",
        f"{title} by evaluation length",
        f"{caption} {bars(results)}",
        f"Evaluation length{training_length(results)}",
        f"{title} (nats per token)",
        2,
        tuple((k, multiple(k)) for k in results.multiples),
        1.0,
        lines(results, lambda run: row_by_length(run, rows[run.name], family, results.multiples)),
    )


def _loss_by_length(results: Results, family: str, bits: bool) -> LineChart:
    sliding = family == "sliding"
    unit = "Bits per byte" if bits else "Loss"
    how = (
        "the last L/8 tokens of windows that slide by L/8"
        if sliding
        else "every token of windows side by side"
    )
    return LineChart(
        f"{'sliding_' if sliding else ''}{'bits_per_byte' if bits else 'loss'}_by_length",
        f"{unit} by evaluation length, {'sliding' if sliding else 'non-overlapping'} windows",
        f"{unit} on the same text at every length, scoring {how}. {bars(results)}",
        f"Evaluation length{training_length(results)}",
        "Bits per byte" if bits else "Loss (nats per token)",
        2,
        tuple((k, multiple(k)) for k in results.multiples),
        1.0,
        lines(results, lambda run: by_length(run, PROTOCOLS[family], results.multiples, bits)),
    )


def _loss_by_position(results: Results) -> LineChart:
    shared = results.context_length
    series = lines(results, lambda run: by_position(run, 1 if shared else run.context_length))
    return LineChart(
        "loss_by_position",
        "Loss by position",
        f"Loss after each position of the longest windows, in bins four an octave. {bars(results)}",
        f"Tokens seen in the window{training_length(results)}",
        "Loss (nats per token)",
        2,
        octaves(series, count if shared else multiple),
        float(shared) if shared else 1.0,
        series,
    )


def _position_less_reference(results: Results) -> LineChart:
    """Loss by position less the reference's on the same seeds: the text's own ups and downs cancel."""
    shared, label = results.context_length, results.reference.arm.label
    base = {run.seed: by_position(run, 1) for run in results.reference.arm.finished}
    series = []
    for number, item in arms(results):
        if shared is None or item is results.reference:
            continue
        mine = [(by_position(run, 1), base.get(run.seed, {})) for run in item.arm.finished]
        over_seeds = points([{k: own[k] - other[k] for k in own if k in other} for own, other in mine])
        if over_seeds and all(comparable(run, results.reference.arm) for run in item.arm.finished):
            series.append(Series(number, item.arm.label, over_seeds))
    return LineChart(
        "loss_by_position_less_reference",
        f"Loss by position less that of {label}",
        f"The figure above as a difference from {label} on the same seed: where the text is hard for both, "
        f"that cancels. Below 0 an arm is better. {bars(results)}",
        f"Tokens seen in the window{training_length(results)}",
        f"Loss less that of {label} (nats per token)",
        2,
        octaves(series, count),
        float(shared or 1),
        tuple(series),
    )


def lines(
    results: Results,
    values: Callable[[Run], Values],
    over_seeds: Callable[[Sequence[Values]], tuple[Point, ...]] = points,
) -> tuple[Series, ...]:
    """A line an arm that has any: means over its seeds at every x that one of them has."""
    series = [
        Series(i, item.arm.label, over_seeds([values(run) for run in item.arm.finished]))
        for i, item in arms(results)
    ]
    return tuple(one for one in series if one.points)
