"""The figure of a paper: the tested figure, loss by position and training loss, side by side."""

import io
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace

from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import FixedFormatter

from poslab.analysis.results import Results
from poslab.paper.latex import escape_latex
from poslab.report.charts import LineChart
from poslab.report.render import canvas, paper
from poslab.report.sections import texts
from poslab.report.sections.convergence import validation_chart
from poslab.report.sections.extrapolation import loss_by_position, tested_chart

ENGINE = "pdflatex"  # measures the text of a PGF figure
LETTERS = "abcdefgh"
ROOM = 30  # characters that fit under a panel


def panels(results: Results) -> list[LineChart]:
    """Return the charts of the panels with data or, with several texts, the tested chart of each text."""
    if results.texts and results.primary is not None:
        return [replace(chart, ticks=_thinned(chart.ticks)) for chart in texts.chart(results).panels]
    charts = (tested_chart(results), loss_by_position(results), validation_chart(results))
    return [replace(chart, ticks=_thinned(chart.ticks)) for chart in charts if chart and chart.series]


def caption(charts: Sequence[LineChart]) -> str:
    """Return the captions of the panels; sentences that all panels share come once, at the end."""
    captions = [re.split(r"(?<=\.) (?=[A-Z])", chart.caption) for chart in charts]
    shared = [text for text in captions[0] if all(text in texts for texts in captions)] if charts else []
    parts = [
        " ".join([f"({letter}) {chart.title}.", *(text for text in texts if text not in shared)])
        for letter, chart, texts in zip(LETTERS, charts, captions, strict=False)
    ]
    return " ".join([*parts, *shared])


def _thinned(ticks: tuple[tuple[float, str], ...]) -> tuple[tuple[float, str], ...]:
    """Drop every second tick, counted from the last, until the labels fit under a panel."""
    while len(ticks) > 2 and sum(len(label) + 2 for _, label in ticks) > ROOM:
        ticks = ticks[::-1][::2][::-1]
    return ticks


def draw(charts: Sequence[LineChart]) -> dict[str, bytes]:
    """Return the figure as PDF, and as PGF if LaTeX is installed to measure text; always the same bytes."""
    figure = laid_out(charts)
    with canvas.style():
        drawn = {"pdf": canvas.save(figure, "pdf")}
        if shutil.which(ENGINE):
            drawn["pgf"] = _pgf(figure)
    return drawn


def laid_out(charts: Sequence[LineChart]) -> Figure:
    """Return the panels across both columns, with one layout for all formats."""
    return canvas.settled(lambda: paper.beside_each_other(charts, LETTERS, canvas.WIDE))


def _pgf(figure: Figure) -> bytes:
    """Return the figure for LaTeX to typeset in its own fonts, with all text escaped to print as is."""
    import matplotlib
    from matplotlib.backends.backend_pgf import FigureCanvasPgf

    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
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
