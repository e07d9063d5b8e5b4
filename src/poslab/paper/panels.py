"""The figure of a paper: what is tested, the loss by position and the loss in training side by side."""

import io
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace

from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import FixedFormatter

from poslab.analysis.results import Results
from poslab.report.charts import Chart, LineChart
from poslab.report.render import canvas, paper
from poslab.report.render.latex import escape_latex
from poslab.report.sections.convergence import section as convergence
from poslab.report.sections.extrapolation import section as extrapolation
from poslab.report.sections.extrapolation import tested_chart

BESIDE = ("loss_by_position", "validation_loss")  # the panels after the one that is tested
ENGINE = "pdflatex"  # measures the text of a PGF figure
LETTERS = "abcd"
ROOM = 30  # letters that fit beside each other under a panel


def panels(results: Results) -> list[LineChart]:
    """The charts that stand side by side: those of them that the study has."""
    first = tested_chart(results)
    others: list[Chart] = [*extrapolation(results).charts, *convergence(results).charts]
    named = {chart.name: chart for chart in others if isinstance(chart, LineChart)}
    shown = [*([] if first is None else [first]), *(named[one] for one in BESIDE if one in named)]
    return [replace(chart, ticks=_thinned(chart.ticks)) for chart in shown]


def caption(charts: Sequence[LineChart]) -> str:
    """What each panel shows; a sentence that captions share stands at the end, once."""
    sentences = [re.split(r"(?<=\.) (?=[A-Z])", chart.caption) for chart in charts]
    shared = [one for one in sentences[0] if all(one in other for other in sentences)] if charts else []
    parts = [
        " ".join([f"({letter}) {chart.title}.", *(one for one in own if one not in shared)])
        for letter, chart, own in zip(LETTERS, charts, sentences, strict=False)
    ]
    return " ".join([*parts, *shared])


def _thinned(ticks: tuple[tuple[float, str], ...]) -> tuple[tuple[float, str], ...]:
    """Every second tick from the last one, until their labels fit under a panel."""
    while len(ticks) > 2 and sum(len(label) + 2 for _, label in ticks) > ROOM:
        ticks = ticks[::-1][::2][::-1]
    return ticks


def draw(charts: Sequence[LineChart]) -> dict[str, bytes]:
    """The figure as PDF, and as PGF where LaTeX is there to measure its text; the same bytes each time."""
    figure = laid_out(charts)
    with canvas.style():
        drawn = {"pdf": canvas.save(figure, "pdf")}
        if shutil.which(ENGINE):
            drawn["pgf"] = _pgf(figure)
    return drawn


def laid_out(charts: Sequence[LineChart]) -> Figure:
    """The figure in the paper's style, laid out once and for all formats."""
    with canvas.style():
        figure = _drawn(charts)
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
        return figure


def _drawn(charts: Sequence[LineChart]) -> Figure:
    """As wide as both columns; each panel has its own scale, all have one legend.

    Of more arms than it has room for, those are named that end lowest in the first panel.
    """
    every = {one.arm: one.label for chart in charts for one in chart.series}
    several = len(every) > paper.MANY
    shown = {one.arm: one.label for one in paper.named(charts[0].series)} if several else every
    columns = paper.legend_columns(list(shown.items()), 110)
    rows = -(-len(shown) // columns) + 2 * several
    figure = canvas.canvas(canvas.WIDE, canvas.HEIGHT + canvas.LEGEND_ROW * rows)
    for axes, chart, letter in zip(
        figure.subplots(1, len(charts), squeeze=False)[0], charts, LETTERS, strict=False
    ):
        paper.axes_of(axes, chart, [one for one in chart.series if one.arm in shown])
        axes.set_ylim(*paper.limits(chart.series))
        axes.set_xlabel(canvas.verbatim(chart.x_label))
        axes.set_ylabel(canvas.verbatim(chart.y_label))
        axes.set_title(f"({letter})", loc="left", fontsize=8.5)
    paper.legend_of(figure, list(shown.items()), columns, len(every) - len(shown))
    return figure


def _pgf(figure: Figure) -> bytes:
    """The figure as LaTeX draws it in its own type: every text becomes LaTeX that prints as it stands."""
    import matplotlib
    from matplotlib.backends.backend_pgf import FigureCanvasPgf

    for axis in (one for axes in figure.axes for one in (axes.xaxis, axes.yaxis)):
        formatter = axis.get_major_formatter()
        if isinstance(formatter, FixedFormatter):
            axis.set_major_formatter(FixedFormatter([escape_latex(text) for text in formatter.seq]))
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        text.set_text(escape_latex(text.get_text().replace(r"\$", "$").replace("\\\\", "\\")))
    buffer = io.StringIO()
    with matplotlib.rc_context({"pgf.texsystem": ENGINE, "pgf.rcfonts": False}):
        FigureCanvasPgf(figure).print_pgf(buffer)  # type: ignore[no-untyped-call]
    return buffer.getvalue().encode()
