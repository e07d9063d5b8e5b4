"""Draw the figures of claims as SVG; the same numbers give the same bytes."""

import io
import re
from typing import Any

import matplotlib
import matplotlib.style
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import MaxNLocator, NullFormatter

from claims.contract import Figure

WIDTH, HEIGHT = 5.2, 2.6  # inches
LEGEND_ROW = 0.2
DIGITS = 6  # of a point; further digits can differ between machines
PATH, FINER = re.compile(rb' d="[^"]*"'), re.compile(rb"(\.\d\d)\d+")  # hundredths of a point are enough
MAX_POINTS = 600  # of a line; with more, only every n-th is drawn
# Okabe and Ito's colours without yellow, which is hard to see on white paper.
COLOURS = ("#0072b2", "#d55e00", "#008a63", "#b8568f", "#b07900", "#3a95cf", "#4a4a4a")
DASHES: tuple[tuple[float, ...], ...] = (
    (),
    (5, 2),
    (1.5, 1.5),
    (6, 2, 1.5, 2),
    (9, 3),
    (3, 1.5, 1.5, 1.5, 1.5, 1.5),
)
STYLE: dict[str, Any] = {
    # Text stays text, since glyphs drawn as paths are half of a figure's bytes. Matplotlib brings the font,
    # so every machine has the same layout; it is wider than browsers' substitutes, so nothing overlaps.
    "svg.fonttype": "none",
    "font.family": ["DejaVu Sans", "sans-serif"],
    "mathtext.fontset": "dejavusans",
    **dict.fromkeys(("font.size", "axes.labelsize"), 7.5),
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize", "legend.fontsize"), 7),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False),
    **dict.fromkeys(("axes.grid", "axes.axisbelow"), True),
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.5,
    **dict.fromkeys(("axes.linewidth", "xtick.major.width", "ytick.major.width"), 0.6),
    **dict.fromkeys(("xtick.major.size", "ytick.major.size"), 2.5),
    "lines.markersize": 3.6,
    "legend.handlelength": 2.4,
    "legend.columnspacing": 1.2,
    "svg.hashsalt": "poslab",
}


def svg(figure: Figure) -> bytes:
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # a reader's own settings must not change the figure
        matplotlib.style.use(STYLE)
        content = io.BytesIO()
        # No date and no version: the same numbers give the same bytes.
        plain = {"Date": None, "Creator": None}
        _drawn(figure).savefig(content, format="svg", metadata=plain, bbox_inches="tight", pad_inches=0.03)
    return PATH.sub(lambda path: FINER.sub(rb"\1", path[0]), content.getvalue())


def _drawn(figure: Figure) -> Drawing:
    rows = -(-len(figure.lines) // 2) if len(figure.lines) > 1 else 0
    drawing = Drawing(figsize=(WIDTH, HEIGHT + LEGEND_ROW * rows), layout="constrained")
    FigureCanvasAgg(drawing)
    axes = drawing.add_subplot()
    for number, line in enumerate(figure.lines):
        every = max(1, len(line.x) // MAX_POINTS)
        axes.plot(
            [float(f"{x:.{DIGITS}g}") for x in line.x[::every]],
            [float(f"{y:.{DIGITS}g}") for y in line.y[::every]],
            color=COLOURS[number % len(COLOURS)],
            dashes=DASHES[number % len(DASHES)] or (None, None),
            linewidth=1.2,
            drawstyle="steps-post" if figure.stepped else "default",
            label=line.label,
        )
    if figure.log_x:
        axes.set_xscale("log")
    elif all(x == int(x) for line in figure.lines for x in line.x):  # layers or tokens: whole ticks only
        axes.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 2.5, 5, 10], integer=True))
    if figure.log_y:
        axes.set_yscale("log")
        axes.yaxis.set_minor_formatter(NullFormatter())
    elif any(min(line.y) < 0 < max(line.y) for line in figure.lines):
        axes.axhline(0, color="#777777", linewidth=0.6)
    axes.set_xlabel(figure.x_label)
    axes.set_ylabel(figure.y_label)
    if len(figure.lines) > 1:
        drawing.legend(loc="outside upper center", ncols=2)
    return drawing
