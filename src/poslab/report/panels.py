"""The figures of rescaled arms as data: a panel an arm, a line a rotation, one scale for all panels."""

from collections.abc import Callable
from dataclasses import dataclass

from poslab.config.text import plain
from poslab.record.measures import TOLERANCES, Value
from poslab.record.reader import Run
from poslab.report.analysis.rescalings import Line, RescaledArm, measured
from poslab.report.analysis.results import Results
from poslab.report.charts import (
    LineChart,
    Series,
    Values,
    bars,
    by_length,
    by_position,
    in_bits,
    octaves,
    points,
)
from poslab.report.formatting import count, multiple
from poslab.report.style import line_number

START = 1 / 4  # of L: where loss by position starts here, as the first tokens of a window would fill a panel
CEILING = 1.5  # of the highest plateau as trained: where loss by position ends, as failed lines would fill it

Drawn = tuple[RescaledArm, tuple[tuple[Line, Series], ...]]


@dataclass(frozen=True)
class PanelChart:
    """Line charts of several arms beside each other, under one legend."""

    name: str
    title: str
    caption: str
    panels: tuple[LineChart, ...]  # each has its arm's label as its title
    legend: tuple[tuple[int, str], ...]  # of all panels: the number of each look, and what it stands for
    rows: list[dict[str, Value]]  # the CSV beside the figure


def panel_charts(results: Results) -> list[PanelChart]:
    """Loss by evaluation length and by position of the rescaled arms, as far as the records have them."""
    return [chart for chart in (_by_length(results), _by_position(results)) if chart.panels]


def _by_length(results: Results) -> PanelChart:
    bits = in_bits(
        measured(run, line.rescale)
        for one in results.rescaled
        for line in one.lines
        for run in one.item.arm.finished
    )
    unit = "Bits per byte" if bits else "Loss"
    drawn = _drawn(results, lambda run: by_length(run, "non_overlapping", results.multiples, bits))
    name = f"rescaled_{'bits_per_byte' if bits else 'loss'}_by_length"
    panels = [
        LineChart(
            name,
            one.item.arm.label,
            "",
            f"Evaluation length (L = {one.item.arm.context_length:,})",
            unit if bits else "Loss (nats per token)",
            2,
            tuple((k, multiple(k)) for k in results.multiples),
            1.0,
            tuple(series for _, series in lines),
        )
        for one, lines in drawn
    ]
    caption = (
        f"{unit} on the same text at every length, scoring every token of windows side by side: each trained "
        f"model as it is and under other rotations. {_scale(panels)}{bars(results)}"
    )
    return PanelChart(
        name,
        f"{unit} by evaluation length under other rotations",
        caption,
        tuple(panels),
        _legend(drawn),
        _rows(drawn),
    )


def _by_position(results: Results) -> PanelChart:
    shared = results.context_length

    def values(run: Run) -> Values:
        length = run.context_length
        return by_position(run, 1 if shared else length, START * length)

    drawn = _drawn(results, values)
    levels = [_level(one) for one, _ in drawn]
    every = [series for _, lines in drawn for _, series in lines]
    ceiling = max((CEILING * plateau for one, _ in drawn if (plateau := _plateau(one))), default=None)
    panels = [
        LineChart(
            "rescaled_loss_by_position",
            one.item.arm.label,
            "",
            "Tokens seen" + (f" (L = {shared:,})" if shared else ""),
            "Loss (nats per token)",
            2,
            octaves(every, count if shared else multiple),
            float(shared) if shared else 1.0,
            tuple(series for _, series in lines),
            level,
            ceiling,
        )
        for (one, lines), level in zip(drawn, levels, strict=True)
    ]
    caption = (
        f"Loss after each position of the longest windows from {multiple(START)} on, in bins four an octave. "
        f"Past L, the dashed level lies {100 * TOLERANCES['']:g} % over the plateau of the model as trained: "
        f"a line above it has failed. Lines may leave the frame at {CEILING:g} times the highest plateau. "
        f"{_scale(panels)}{bars(results)}"
    )
    return PanelChart(
        "rescaled_loss_by_position",
        "Loss by position under other rotations",
        caption,
        tuple(panels),
        _legend(drawn),
        _rows(drawn, levels),
    )


def _level(one: RescaledArm) -> float | None:
    plateau = _plateau(one)
    return None if plateau is None else (1 + TOLERANCES[""]) * plateau


def _plateau(one: RescaledArm) -> float | None:
    return one.item.mean("plateau")


def _drawn(results: Results, values: Callable[[Run], Values]) -> list[Drawn]:
    """The arms with their lines and what is drawn of each, where there is anything."""
    found = []
    for one in results.rescaled:
        lines = [
            (
                line,
                Series(
                    line_number(line.place),
                    line.label,
                    points([values(measured(run, line.rescale)) for run in one.item.arm.finished]),
                ),
            )
            for line in one.lines
        ]
        kept = tuple((line, series) for line, series in lines if series.points)
        if kept:
            found.append((one, kept))
    return found


def _legend(drawn: list[Drawn]) -> tuple[tuple[int, str], ...]:
    found = {line.label: line for _, lines in drawn for line, _ in lines}
    return tuple(
        (line_number(line.place), line.label) for line in sorted(found.values(), key=lambda line: line.place)
    )


def _rows(drawn: list[Drawn], levels: list[float | None] | None = None) -> list[dict[str, Value]]:
    rows: list[dict[str, Value]] = []
    for i, (one, lines) in enumerate(drawn):
        end: dict[str, Value] = {} if levels is None else {"failure_level": levels[i]}
        for line, series in lines:
            start = {"arm": one.item.arm.label, "rescale": plain(line.rescale, 60), "line": line.label}
            rows += [{**start, **point.row, **end} for point in series.points]
    return rows


def _scale(panels: list[LineChart]) -> str:
    return "" if len(panels) < 2 else "One scale for all arms. "
