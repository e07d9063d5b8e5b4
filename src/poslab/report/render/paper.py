"""The paper figures: readable in grey, with the same bytes for the same records."""

import math
import os
import sys
import textwrap
import warnings
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import singledispatch
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter, NullLocator

from poslab.analysis.palette import look
from poslab.report import charts
from poslab.report.formatting import quantity
from poslab.report.render.canvas import (
    HEIGHT,
    LEGEND_ROW,
    PANEL,
    WIDE,
    WIDTH,
    canvas,
    save,
    settled,
    style,
    verbatim,
)

DASHED: dict[str, Any] = {"color": "#777777", "linewidth": 0.7, "linestyle": (0, (2, 2)), "zorder": 1}
MARKS = {"50": "s", "75": "o", "90": "^"}  # markers of targets, by percent of the budget

# Panels of shaded numbers, in inches unless noted.
CELL = 0.19  # height of a row
LEAST = 0.2  # smallest desired width of a column
MARGIN = 0.5  # room beside the cells of a panel, for its row titles
BAR = 0.9  # room beside all panels, for the scale
LETTER = 0.5  # width of a digit relative to its height
LARGEST, SMALLEST = 7.0, 4.5  # points: the largest font size, and the size below which numbers are omitted
SHADES = 32  # few enough to keep vector files small
DARK = 22 / SHADES  # from here on, white contrasts more with a shade than near black (WCAG luminance)


def draw_all(figures: Sequence[charts.Chart]) -> list[dict[str, bytes]]:
    """Draw each figure with `draw`, using one process per core on systems that can fork."""
    processes = min(len(figures), len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1)
    if processes > 1:
        with warnings.catch_warnings(), suppress(BrokenProcessPool, OSError):  # killed: no memory
            warnings.simplefilter("ignore", DeprecationWarning)  # about threads, which are idle here
            with ProcessPoolExecutor(processes, get_context("fork"), _end_with_parent) as pool:
                return list(pool.map(draw, figures))
    return list(map(draw, figures))


def _end_with_parent() -> None:
    """End when the command ends or is killed: a living process would keep the lock of the report."""
    parent = parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    Thread(target=wait, daemon=True).start()


def draw(chart: charts.Chart) -> dict[str, bytes]:
    """Return the figure in each format, by file extension."""
    figure = laid_out(chart)
    with style():
        return {kind: save(figure, kind) for kind in charts.FORMATS}


def laid_out(chart: charts.Chart) -> Figure:
    """Return the figure with one layout for all formats."""
    return settled(lambda: _drawn(chart))


@singledispatch
def _drawn(chart: object) -> Figure:
    raise TypeError(f"no paper figure for a {type(chart).__name__}")


@_drawn.register
def _lines(chart: charts.LineChart) -> Figure:
    return beside_each_other([chart], [""], WIDTH)


def beside_each_other(drawn: Sequence[charts.LineChart], letters: Sequence[str], width: float) -> Figure:
    """Draw charts side by side under one legend, each with its own scale and letter."""
    legend = list({line.arm: line.label for chart in drawn for line in chart.series}.items())
    columns = legend_columns(legend, 48 if width == WIDTH else 110)
    figure = canvas(width, HEIGHT + LEGEND_ROW * math.ceil(len(legend) / columns))
    for axes, chart, letter in zip(
        figure.subplots(1, len(drawn), squeeze=False)[0], drawn, letters, strict=False
    ):
        axes_of(axes, chart)
        low, high = chart.frame or (0.0, 0.0)
        margin = 0.03 * (high - low)  # so that a line at the end of y is fully visible
        axes.set_ylim(*(limits(chart.series) if chart.frame is None else (low - margin, high + margin)))
        axes.set_xlabel(verbatim(chart.x_label))
        axes.set_ylabel(verbatim(chart.y_label))
        axes.set_title(f"({letter})" if letter else "", loc="left", fontsize=8.5)
    legend_of(figure, legend, columns)
    return figure


@_drawn.register
def _panels(chart: charts.PanelChart) -> Figure:
    """Draw one panel per arm with a shared y scale; several panels span the width of the page."""
    n = len(chart.panels)
    across = min(n, 4)
    down = math.ceil(n / across)
    width = WIDTH if n == 1 else WIDE
    columns = legend_columns(chart.legend, 48 if n == 1 else 110)
    height = (HEIGHT if n == 1 else PANEL * down) + LEGEND_ROW * math.ceil(len(chart.legend) / columns) + 0.2
    figure = canvas(width, height)
    grid = figure.subplots(down, across, squeeze=False, sharey=True).flatten()
    first, every = chart.panels[0], [series for panel in chart.panels for series in panel.series]
    bounds = first.frame or limits(every, first.ceiling)
    for axes, panel in zip(grid, chart.panels, strict=False):
        axes_of(axes, panel)
        axes.set_ylim(*bounds)
        axes.set_title(verbatim("\n".join(textwrap.wrap(panel.title, 120 // across))), fontsize=8.5)
    labels = dict.fromkeys(panel.x_label for panel in chart.panels)
    _label(figure, grid[n:], " or ".join(labels), chart.panels[0].y_label)
    legend_of(figure, chart.legend, columns)
    return figure


def _label(figure: Figure, unused: Iterable[Axes], x_label: str, y_label: str) -> None:
    """Add the shared axis labels, and hide the unused axes."""
    for axes in unused:
        axes.set_axis_off()
    figure.supxlabel(verbatim(x_label), fontsize=8.5)
    figure.supylabel(verbatim(y_label), fontsize=8.5)


def axes_of(axes: Axes, chart: charts.LineChart) -> None:
    """Draw the lines, ticks and marks of a chart."""
    axes.set_xscale("log", base=chart.base)
    for series in chart.series:
        _line(axes, series, "steps-post" if chart.stepped else "default")
    axes.set_xticks([x for x, _ in chart.ticks], [label for _, label in chart.ticks])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_minor_locator(NullLocator())
    if chart.mark is not None:
        axes.axvline(chart.mark, **DASHED)
        if (chart.mark, chart.mark_label) not in chart.ticks:
            axes.annotate(
                chart.mark_label,
                (chart.mark, 1),
                (2, -1),
                xycoords=axes.get_xaxis_transform(),
                textcoords="offset points",
                va="top",
                color="#555555",
                style="italic",
            )
    if chart.level is not None and chart.mark is not None:
        last = max(point.x for series in chart.series for point in series.points)
        ends = [chart.mark, max(chart.mark, last)]
        axes.plot(ends, [chart.level] * 2, **DASHED)
    for span in chart.spans:
        axes.plot(
            [span.low, span.high],
            [span.y] * 2,
            linestyle="--" if span.dashed else "-",
            color="#555555",
            linewidth=1,
            marker="|",
            markersize=5,
        )
        axes.annotate(
            verbatim(span.label),
            (math.sqrt(span.low * span.high), span.y),
            (0, 1.5),
            textcoords="offset points",
            ha="center",
            va="bottom",
            fontsize=7,
            color="#555555",
        )


def _line(axes: Axes, series: charts.Series, drawn: str) -> None:
    style = look(series.arm)
    x, mean = zip(*((point.x, point.mean) for point in series.points), strict=True)
    sparse = len(x) <= 8
    axes.plot(
        x,
        mean,
        color=style.light,
        dashes=style.dash or (None, None),
        drawstyle=drawn,
        marker=style.marker,
        # Markers on every point would hide a long line.
        markevery=1 if sparse else (series.arm % 4 + 2, max(1, len(x) // 7)),
        markeredgewidth=0,
    )
    half = [math.nan if point.half_width is None else point.half_width for point in series.points]
    if sparse:
        axes.errorbar(x, mean, half, fmt="none", ecolor=style.light, elinewidth=0.8, capsize=1.8)
    else:
        low, high = zip(*((m - h, m + h) for m, h in zip(mean, half, strict=True)), strict=True)
        axes.fill_between(x, low, high, color=style.light, alpha=0.16, linewidth=0)


def limits(series: Sequence[charts.Series], ceiling: float | None = None) -> tuple[float, float]:
    """Return a range of y that contains every run; wide intervals of few seeds may be cut off.

    With a `ceiling`, everything above it is cut off as well.
    """
    low = min(point.lowest for line in series for point in line.points)
    high = max(point.highest for line in series for point in line.points)
    high = min(high, ceiling) if ceiling is not None and ceiling > low else high
    margin = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    return low - margin, high + margin


@_drawn.register
def _tracks(chart: charts.TrackChart) -> Figure:
    kinds = [kind for _, kind in chart.heads if kind]
    labels = [textwrap.wrap(track.label, 20) for track in chart.tracks]
    least = 2 if kinds else 1  # smallest height of a row, in lines of text
    height = 0.16 * sum(max(least, len(lines)) for lines in labels)
    figure = canvas(WIDTH, height + (0.95 if kinds else 0.55))
    axes = figure.add_subplot()
    low, high = chart.scale
    past = 0.04 * (high - low) if kinds else 0.0
    for y, track in enumerate(chart.tracks):
        style = look(track.arm)
        if track.bar is not None:
            axes.plot(track.bar, [-y, -y], color=style.light, linewidth=4, alpha=0.35)
        for kind, x in track.marks:
            above = 0.24 * ((len(kinds) - 1) / 2 - kinds.index(kind)) if kinds else 0.0
            marker = MARKS.get(kind, "D") if kinds else style.marker
            axes.plot(
                [high + past if x is None else x],
                [above - y],
                marker=">" if x is None else marker,
                markerfacecolor="white" if x is None else style.light,
                markeredgecolor=style.light,
                markeredgewidth=0.8,
                linestyle="none",
                clip_on=False,
            )
    axes.set_yticks([-y for y in range(len(labels))], [verbatim("\n".join(lines)) for lines in labels])
    axes.set_ylim(0.6 - len(labels), 0.6)
    axes.grid(axis="y", visible=False)
    axes.set_xlim(low, high + 2 * past)
    axes.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 2.5, 5, 10], integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: quantity(x) if x else "0"))
    axes.set_xlabel(chart.x_label)
    if kinds:
        axes.axvline(high, **DASHED)
        marks = [
            Line2D([], [], marker=MARKS.get(kind, "D"), label=f"{kind} %", color="#555555", linestyle="none")
            for kind in kinds
        ]
        heading = "Reaching the reference's loss at"
        figure.legend(handles=marks, loc="outside upper center", ncols=len(marks), title=heading)
    return figure


def legend_columns(legend: Sequence[tuple[int, str]], room: int) -> int:
    """Return how many columns of the longest label fit into `room` characters."""
    return max(1, min(len(legend), max(4, room // 20), room // (max(len(label) for _, label in legend) + 6)))


def legend_of(figure: Figure, legend: Sequence[tuple[int, str]], columns: int) -> None:
    handles = [
        Line2D(
            [],
            [],
            color=style.light,
            marker=style.marker,
            markeredgewidth=0,
            dashes=style.dash or (None, None),
            label=verbatim("\n".join(textwrap.wrap(label, 52))),
        )
        for style, label in ((look(number), label) for number, label in legend)
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=columns)


@_drawn.register
def _heat(chart: charts.HeatPanels) -> Figure:
    """Draw shaded numbers: one panel at the width of a column, several at the width of the page."""
    n = len(chart.panels)
    columns = max(len(panel.column_titles) for panel in chart.panels)
    rows = max(len(panel.row_titles) for panel in chart.panels)
    most = max(1, min(n, 4, int((WIDE - BAR) / (columns * LEAST + MARGIN))))
    down = math.ceil(n / most)
    across = math.ceil(n / down)  # rows of panels as even as possible
    width = WIDTH if n == 1 else WIDE
    cell = ((width - BAR) / across - MARGIN) / columns
    titles = [textwrap.wrap(panel.label, int((cell * columns + 0.3) / 0.07)) for panel in chart.panels]
    heading = 0.15 * max(len(lines) for lines in titles)
    height = down * (rows * CELL + heading + 0.28) + 0.3
    figure = canvas(width, height)
    grid = figure.subplots(down, across, squeeze=False).flatten()
    norm, shades = Normalize(0, chart.high), matplotlib.colormaps["Blues"].resampled(SHADES)
    for axes, panel, lines in zip(grid, chart.panels, titles, strict=False):
        _cells(axes, chart, panel, norm, shades, cell)
        axes.set_title(verbatim("\n".join(lines)), fontsize=8.5)
    bar = figure.colorbar(
        ScalarMappable(norm, shades), ax=list(grid), aspect=12 * height, pad=0.015, shrink=0.9
    )
    bar.outline.set_linewidth(0.5)
    if chart.in_percent:
        ticks = [chart.high * k / 4 for k in range(5)]
        bar.set_ticks(ticks, labels=[f"{100 * tick:g}" for tick in ticks])
    bar.set_label(verbatim(chart.unit), fontsize=8)
    _label(figure, grid[n:], chart.column_label, chart.row_label)
    return figure


def _cells(
    axes: Axes,
    chart: charts.HeatPanels,
    panel: charts.HeatPanel,
    norm: Normalize,
    shades: Colormap,
    width: float,
) -> None:
    """Draw the shaded cells of one panel, each `width` inches wide; a dash marks a missing value."""
    values = [[math.nan if cell is None else cell.mean for cell in row] for row in panel.cells]
    axes.pcolormesh(values, norm=norm, cmap=shades, edgecolors="white", linewidth=0.8)
    axes.invert_yaxis()  # the first row at the top
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    axes.set_xticks([i + 0.5 for i in range(len(panel.column_titles))], map(verbatim, panel.column_titles))
    axes.set_yticks([i + 0.5 for i in range(len(panel.row_titles))], map(verbatim, panel.row_titles))
    texts = [[None if cell is None else chart.formatted(cell.mean) for cell in row] for row in panel.cells]
    letters = max((len(text) for row in texts for text in row if text), default=1)
    size = min(LARGEST, 72 * width * 0.9 / (letters * LETTER))
    for y, row in enumerate(texts):
        for x, text in enumerate(row):
            if text is None:
                axes.text(x + 0.5, y + 0.5, "–", ha="center", va="center", color="#777777", fontsize=LARGEST)
            elif size >= SMALLEST:
                color = "white" if norm(values[y][x]) >= DARK else "#1a1b1e"
                axes.text(
                    x + 0.5, y + 0.5, text, ha="center", va="center_baseline", color=color, fontsize=size
                )
