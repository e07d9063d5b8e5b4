"""The paper figures: one column wide, readable in grey, the same bytes from the same records."""

import io
import math
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib
import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator

from poslab.report.charts import LineChart, Reach, Series, TargetChart
from poslab.report.formatting import quantity
from poslab.report.style import look

WIDTH = 3.35  # inches: a column of a two-column paper
HEIGHT = 2.1
LEGEND_ROW = 0.16
FORMATS = ("svg", "png", "pdf")

STYLE: dict[str, Any] = {
    "font.family": ["STIXGeneral", "DejaVu Sans"],  # both come with Matplotlib, so every machine draws alike
    "mathtext.fontset": "stix",
    "font.size": 8.5,
    "axes.labelsize": 8.5,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "legend.title_fontsize": 8,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "lines.linewidth": 1.3,
    "lines.markersize": 3.6,
    "legend.frameon": False,
    "legend.handlelength": 2.4,
    "legend.columnspacing": 1.2,
    "savefig.dpi": 300,
    "svg.hashsalt": "poslab",
    "pdf.fonttype": 42,  # letters stay letters, as journals ask
}


def draw(chart: LineChart | TargetChart) -> dict[str, bytes]:
    """The figure in each format, by file ending."""
    with _style():
        figure = _lines(chart) if isinstance(chart, LineChart) else _targets(chart)
        return {kind: _save(figure, kind) for kind in FORMATS}


@contextmanager
def _style() -> Iterator[None]:
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # a reader's own settings must not change the figure
        matplotlib.style.use(STYLE)
        yield


def _save(figure: Figure, kind: str) -> bytes:
    # No date and no version: the same records give the same bytes.
    metadata: dict[str, dict[str, Any]] = {
        "svg": {"Date": None, "Creator": None},
        "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
        "png": {"Software": None},
    }
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, metadata=metadata[kind], bbox_inches="tight", pad_inches=0.03)
    return buffer.getvalue()


def _canvas(height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.add_subplot()


def _lines(chart: LineChart) -> Figure:
    columns = _legend_columns(chart.series)
    figure, axes = _canvas(HEIGHT + LEGEND_ROW * math.ceil(len(chart.series) / columns))
    axes.set_xscale("log", base=chart.base)
    for series in chart.series:
        _line(axes, series)
    axes.set_ylim(*limits(chart.series))
    axes.set_xlabel(_text(chart.x_label))
    axes.set_ylabel(_text(chart.y_label))
    axes.set_xticks([x for x, _ in chart.ticks], [label for _, label in chart.ticks])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_minor_locator(NullLocator())
    if chart.mark is not None:
        axes.axvline(chart.mark, color="#777777", linewidth=0.7, linestyle=(0, (2, 2)), zorder=1)
        if (chart.mark, "L") not in chart.ticks:
            axes.annotate(
                "L",
                (chart.mark, 1),
                (2, -1),
                xycoords=axes.get_xaxis_transform(),
                textcoords="offset points",
                va="top",
                color="#555555",
                style="italic",
            )
    _legend(figure, chart.series, columns)
    return figure


def _line(axes: Axes, series: Series) -> None:
    style = look(series.arm)
    x = [point.x for point in series.points]
    mean = [point.mean for point in series.points]
    few = len(x) <= 8
    axes.plot(
        x,
        mean,
        color=style.light,
        dashes=style.dash or (None, None),
        marker=style.marker,
        # Marks on every point of a long line would hide it.
        markevery=1 if few else (series.arm % 4 + 2, max(1, len(x) // 7)),
        markeredgewidth=0,
    )
    half = [point.half_width for point in series.points]
    if few:
        for a, m, h in zip(x, mean, half, strict=True):
            if h is not None:
                axes.errorbar(a, m, h, fmt="none", ecolor=style.light, elinewidth=0.8, capsize=1.8)
    else:
        low = [m - h if h is not None else math.nan for m, h in zip(mean, half, strict=True)]
        high = [m + h if h is not None else math.nan for m, h in zip(mean, half, strict=True)]
        axes.fill_between(x, low, high, color=style.light, alpha=0.16, linewidth=0)


def limits(series: Sequence[Series]) -> tuple[float, float]:
    """The range of y: every run is inside; intervals of few seeds, far wider than their runs, may be cut."""
    low = min(point.lowest for one in series for point in one.points)
    high = max(point.highest for one in series for point in one.points)
    margin = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    return low - margin, high + margin


def _targets(chart: TargetChart) -> Figure:
    arms = list(dict.fromkeys((reach.arm, reach.label) for reach in chart.reaches))
    fractions = sorted({reach.target.fraction for reach in chart.reaches})
    labels = {arm: textwrap.wrap(label, 20) for arm, label in arms}
    figure, axes = _canvas(0.95 + 0.16 * sum(max(2, len(lines)) for lines in labels.values()))
    edge = max(reach.budget for reach in chart.reaches)
    rows = {arm: -i for i, (arm, _) in enumerate(arms)}
    for reach in chart.reaches:
        _dot(axes, reach, rows[reach.arm] + 0.24 * (1 - fractions.index(reach.target.fraction)), edge)
    axes.axvline(edge, color="#777777", linewidth=0.7, linestyle=(0, (2, 2)), zorder=1)
    axes.set_yticks([rows[arm] for arm, _ in arms], [_text("\n".join(labels[arm])) for arm, _ in arms])
    axes.set_ylim(0.6 - len(arms), 0.6)
    axes.set_xlim(0, edge * 1.08)
    axes.grid(axis="y", visible=False)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: quantity(x) if x else "0"))
    axes.set_xlabel("Training tokens (dashed: budget)")
    marks = [
        Line2D([], [], color="#555555", marker=_mark(f), linestyle="none", label=f"{100 * f:g} %")
        for f in fractions
    ]
    heading = "Reaching the reference's loss at"
    figure.legend(handles=marks, loc="outside upper center", ncols=len(marks), title=heading)
    return figure


def _dot(axes: Axes, reach: Reach, y: float, edge: float) -> None:
    color = look(reach.arm).light
    missed = reach.tokens is None
    axes.plot(
        [edge * 1.04 if reach.tokens is None else reach.tokens],
        [y],
        marker=">" if missed else _mark(reach.target.fraction),
        markerfacecolor="white" if missed else color,
        markeredgecolor=color,
        markeredgewidth=0.8,
        linestyle="none",
        clip_on=False,
    )


def _mark(fraction: float) -> str:
    return {0.5: "s", 0.75: "o", 0.9: "^"}.get(fraction, "D")


def _legend_columns(series: Sequence[Series]) -> int:
    """As many columns as the longest label leaves room for."""
    return max(1, min(len(series), 4, 48 // (max(len(one.label) for one in series) + 6)))


def _legend(figure: Figure, series: Sequence[Series], columns: int) -> None:
    handles = []
    for one in series:
        style = look(one.arm)
        handle = Line2D([], [], color=style.light, marker=style.marker, markeredgewidth=0)
        handle.set_dashes(style.dash or (None, None))
        handle.set_label(_text("\n".join(textwrap.wrap(one.label, 52))))
        handles.append(handle)
    figure.legend(handles=handles, loc="outside upper center", ncols=columns)


def _text(text: str) -> str:
    """Text that Matplotlib does not read as mathematics."""
    return text.replace("\\", "\\\\").replace("$", r"\$") if "$" in text else text
