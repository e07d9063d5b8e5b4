"""The figures of claims, as SVG: the same bytes from the same numbers."""

from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import MaxNLocator, NullFormatter

from poslab.analysis.palette import look
from poslab.claims.contract import Figure
from poslab.report.render.canvas import canvas, save, style, verbatim

WIDTH, HEIGHT = 5.2, 2.6  # inches
LEGEND_ROW = 0.2
DIGITS = 6  # of a point: what differs between machines beyond them is not drawn
MOST = 600  # points of a line; of more, every n-th


def svg(figure: Figure) -> bytes:
    with style():
        return save(_drawn(figure), "svg")


def _drawn(figure: Figure) -> Drawing:
    rows = -(-len(figure.lines) // 2) if len(figure.lines) > 1 else 0
    drawing = canvas(WIDTH, HEIGHT + LEGEND_ROW * rows)
    axes = drawing.add_subplot()
    for number, line in enumerate(figure.lines):
        drawn = look(number)
        every = max(1, len(line.x) // MOST)
        axes.plot(
            [float(f"{x:.{DIGITS}g}") for x in line.x[::every]],
            [float(f"{y:.{DIGITS}g}") for y in line.y[::every]],
            color=drawn.light,
            dashes=drawn.dash or (None, None),
            linewidth=1.2,
            drawstyle="steps-post" if figure.stepped else "default",
            label=verbatim(line.label),
        )
    if figure.log_x:
        axes.set_xscale("log")
    elif all(x == int(x) for line in figure.lines for x in line.x):  # layers, or tokens: no half of one
        axes.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 2.5, 5, 10], integer=True))
    if figure.log_y:
        axes.set_yscale("log")
        axes.yaxis.set_minor_formatter(NullFormatter())
    elif any(min(line.y) < 0 < max(line.y) for line in figure.lines):
        axes.axhline(0, color="#777777", linewidth=0.6)
    axes.set_xlabel(verbatim(figure.x_label))
    axes.set_ylabel(verbatim(figure.y_label))
    if len(figure.lines) > 1:
        drawing.legend(loc="outside upper center", ncols=2)
    return drawing
