"""Past the training length: the value of a longer context, and loss by evaluation length and position."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from poslab.analysis.comparisons import comparable
from poslab.analysis.curves import Point, Values, by_length, by_position, in_bits, points, row_by_length
from poslab.analysis.estimates import ArmFigures
from poslab.analysis.protocols import OTHER
from poslab.analysis.results import Results
from poslab.record.measures import is_in_bits
from poslab.record.reader import Run
from poslab.report.cells import GAINS, bars, lines, nats_family, training_length
from poslab.report.charts import LineChart, PanelChart, Series, octaves
from poslab.report.document import Section
from poslab.report.formatting import count, multiple


def section(results: Results) -> Section:
    """Return loss by length in the untested protocol, loss by position, and gain and curse by length."""
    bits = in_bits(results.finished) or is_in_bits(results.primary)
    untested = loss_by_length(results, OTHER[nats_family(results)], bits)
    losses = (untested, loss_by_position(results), _position_less_reference(results))
    tested = tested_chart(results)
    first = (tested,) if tested is not None and results.is_about_learning else ()  # otherwise in the answer
    drawn = (chart for chart in losses if chart.series)
    charts = (*first, *_by_attention(results), *drawn, *_gains(results))
    return Section("lengths", "By length and by position", charts=charts)


def tested_chart(results: Results) -> LineChart | None:
    """Return loss by length in the tested protocol, or None if no run has it."""
    chart = loss_by_length(results, nats_family(results), is_in_bits(results.primary))
    return chart if chart.series else None


def _by_attention(results: Results) -> list[PanelChart]:
    """Return the tested chart with one panel per attention, if there are several."""
    tested = tested_chart(results)
    attention_of = {item.arm.label: item.arm.attention for item in results.arms}
    attentions = dict.fromkeys(attention_of.values())
    if tested is None or len(attentions) < 2:
        return []
    drawn = {kind: tuple(s for s in tested.series if attention_of[s.label] == kind) for kind in attentions}
    return [
        PanelChart(
            f"{tested.name}_by_attention",
            f"{tested.title}, by attention",
            f"The losses of the figure with all arms, with one panel per attention. {bars(results)}",
            tuple(replace(tested, title=kind, series=s) for kind, s in drawn.items() if s),
            "Arms",
            tested.rows,
            tuple(tested.legend),
        )
    ]


def _gains(results: Results) -> list[LineChart]:
    """Return context gain and early-token curse by length, if a length past L was measured."""
    rows = {run.name: row for run, row in zip(results.runs, results.rows, strict=True)}
    captions = {
        "context_gain": (
            "The sliding-window loss at L minus that at the longer length, on the same text. Above 0, the "
            "longer context helps; below 0, it harms. At L, the gain is 0 by definition."
        ),
        "early_token_curse": (
            "The loss in non-overlapping windows minus that in sliding ones, on the same text: tokens near "
            "a window's start have little context. The non-overlapping loss may fall only because of this."
        ),
    }
    charts = []
    for family, caption in captions.items():

        def values(run: Run, family: str = family) -> Values:
            return row_by_length(run, rows[run.name], family, results.multiples)

        title = GAINS[family]
        chart = _by_length(
            results, family, f"{title} by evaluation length", caption, f"{title} (nats per token)", values
        )
        charts += [chart] if any(p.x > 1 for series in chart.series for p in series.points) else []
    return charts


def loss_by_length(results: Results, family: str, bits: bool) -> LineChart:
    unit, figure = ("Bits per byte", "bits_per_byte") if bits else ("Loss", "loss")
    kind, how = {
        "sliding": ("sliding", "the last L/8 tokens of windows that slide by L/8"),
        "loss": ("non-overlapping", "all targets of non-overlapping windows"),
    }[family]
    return _by_length(
        results,
        f"sliding_{figure}" if family == "sliding" else figure,
        f"{unit} by evaluation length, {kind} windows",
        f"{unit} on the same text at every length, scored on {how}.",
        unit if bits else "Loss (nats per token)",
        lambda run: by_length(run, kind.replace("-", "_"), results.multiples, bits),
    )


def _by_length(
    results: Results, figure: str, title: str, caption: str, unit: str, values: Callable[[Run], Values]
) -> LineChart:
    series = lines(results, lambda item: points(map(values, item.arm.finished)))
    measured = {point.x for line in series for point in line.points}
    return LineChart(
        f"{figure}_by_length",
        title,
        f"{caption} {bars(results)}",
        f"Evaluation length{training_length(results)}",
        unit,
        series,
        tuple((k, multiple(k)) for k in results.multiples if k in measured),
        1.0,
    )


def loss_by_position(results: Results) -> LineChart:
    def line(item: ArmFigures) -> tuple[Point, ...]:
        unit = 1 if results.context_length else item.arm.context_length
        return points(by_position(run, unit) for run in item.arm.finished)

    caption = f"Loss at each position of the longest windows, with four bins per octave. {bars(results)}"
    return position_chart(results, "loss_by_position", "Loss by position", caption, lines(results, line))


def _position_less_reference(results: Results) -> LineChart:
    """Return loss by position minus the reference's on the same seeds, which cancels noise of the text."""
    reference, label = results.reference.arm, results.reference.arm.label
    references = {run.seed: by_position(run, 1) for run in reference.finished}
    longest = max((max(run.positions, default=0) for run in reference.finished), default=0)

    def line(item: ArmFigures) -> tuple[Point, ...]:
        # In windows of another length, a position holds different text.
        alike = {max(run.positions, default=0) for run in item.arm.finished} == {longest}
        if item.arm is reference or not alike or results.context_length is None:
            return ()
        if not all(comparable(run, reference) for run in item.arm.finished):
            return ()
        paired = [(by_position(run, 1), references.get(run.seed, {})) for run in item.arm.finished]
        return points({k: arm[k] - base[k] for k in arm if k in base} for arm, base in paired)

    return position_chart(
        results,
        "loss_by_position_less_reference",
        f"Loss by position minus that of {label}",
        f"The figure above as a difference from {label} on the same seed, so that text that is hard for both "
        f"cancels. Below 0, the arm is better. {bars(results)}",
        lines(results, line),
        f"Loss minus that of {label} (nats per token)",
    )


def position_chart(
    results: Results,
    name: str,
    title: str,
    caption: str,
    series: Sequence[Series],
    y_label: str = "Loss (nats per token)",
) -> LineChart:
    """Return lines over the position in the window: in tokens, or in multiples of L if arms differ in L."""
    shared = results.context_length
    x_label = f"Position in the window{', in tokens' if shared else ''}{training_length(results)}"
    ticks = octaves(series, count if shared else multiple)
    return LineChart(name, title, caption, x_label, y_label, tuple(series), ticks, float(shared or 1))
