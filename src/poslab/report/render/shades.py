"""The paper figure of shaded numbers: a panel an arm, one scale of shades, numbers printed where they fit."""

import math
import textwrap
from collections.abc import Sequence

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, Normalize
from matplotlib.figure import Figure

from poslab.report.document import HeatPanel, HeatPanels
from poslab.report.render.style import WIDE, WIDTH, verbatim

CELL = 0.19  # inches: the height of a row
LEAST = 0.2  # and the width that a column should have
MARGIN = 0.5  # beside the cells of a panel, for the titles of its rows
BAR = 0.9  # beside all panels, for the scale
LETTER = 0.5  # how wide a digit is, in its own height
LARGEST, SMALLEST = 7.0, 4.5  # points: the size of a number, and that below which it is left out
SHADES = 32  # few enough that a vector file stays small


def heat_figure(chart: HeatPanels) -> Figure:
    """As wide as a column of the paper with one panel, as wide as the page with several."""
    n = len(chart.panels)
    columns = max(len(panel.column_titles) for panel in chart.panels)
    rows = max(len(panel.row_titles) for panel in chart.panels)
    most = max(1, min(n, 4, int((WIDE - BAR) / (columns * LEAST + MARGIN))))
    down = math.ceil(n / most)
    across = math.ceil(n / down)  # rows of panels as even as they go
    width = WIDTH if n == 1 else WIDE
    cell = ((width - BAR) / across - MARGIN) / columns
    titles = [textwrap.wrap(panel.label, int((cell * columns + 0.3) / 0.07)) for panel in chart.panels]
    heading = 0.15 * max(len(lines) for lines in titles)
    height = down * (rows * CELL + heading + 0.28) + 0.3
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(down, across, squeeze=False).flatten()
    norm, shades = Normalize(chart.low, chart.high), matplotlib.colormaps["Blues"].resampled(SHADES)
    for axes, panel, lines in zip(grid, chart.panels, titles, strict=False):
        _cells(axes, chart, panel, norm, shades, cell)
        axes.set_title(verbatim("\n".join(lines)), fontsize=8.5)
    for axes in grid[n:]:
        axes.set_axis_off()
    bar = figure.colorbar(
        ScalarMappable(norm, shades), ax=list(grid), aspect=12 * height, pad=0.015, shrink=0.9
    )
    bar.outline.set_linewidth(0.5)
    if chart.in_percent:
        ticks = [chart.low + (chart.high - chart.low) * k / 4 for k in range(5)]
        bar.set_ticks(ticks, labels=[f"{100 * tick:g}" for tick in ticks])
    bar.set_label(verbatim(chart.unit), fontsize=8)
    figure.supxlabel(verbatim(chart.column_label), fontsize=8.5)
    figure.supylabel(verbatim(chart.row_label), fontsize=8.5)
    return figure


def _cells(
    axes: Axes, chart: HeatPanels, panel: HeatPanel, norm: Normalize, shades: Colormap, width: float
) -> None:
    """The shaded cells of one panel, `width` inches each; a dash where there is no value."""
    values = [[math.nan if cell is None else cell.mean for cell in row] for row in panel.cells]
    axes.pcolormesh(values, norm=norm, cmap=shades, edgecolors="white", linewidth=0.8)
    axes.invert_yaxis()  # the first row at the top
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    axes.set_xticks([i + 0.5 for i in range(len(panel.column_titles))], map(verbatim, panel.column_titles))
    axes.set_yticks([i + 0.5 for i in range(len(panel.row_titles))], map(verbatim, panel.row_titles))
    texts = [[None if cell is None else chart.shown(cell.mean) for cell in row] for row in panel.cells]
    letters = max((len(text) for row in texts for text in row if text), default=1)
    size = min(LARGEST, 72 * width * 0.9 / (letters * LETTER))
    for y, row in enumerate(texts):
        for x, text in enumerate(row):
            if text is None:
                axes.text(x + 0.5, y + 0.5, "–", ha="center", va="center", color="#777777", fontsize=LARGEST)
            elif size >= SMALLEST:
                color = _ink(shades(norm(values[y][x])))
                axes.text(
                    x + 0.5, y + 0.5, text, ha="center", va="center_baseline", color=color, fontsize=size
                )


def _ink(shade: Sequence[float]) -> str:
    """White or near black, whichever stands out more from a shade (WCAG's relative luminance)."""
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in shade[:3]]
    luminance = sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
    return "white" if 1.05 / (luminance + 0.05) > (luminance + 0.05) / 0.06 else "#1a1b1e"
