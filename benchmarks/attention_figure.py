"""Draw time and memory against length: a colour per attention, a dash and a marker per scheme."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from attention_growth import Row
from poslab.analysis.palette import COLOURS, DASHES, MARKERS
from poslab.report.render.canvas import STYLE, WIDE

GREY = "#bdbdbd"


def draw(rows: Sequence[Row], emphasised: Sequence[str], folder: Path) -> None:
    """Write attention.svg and attention.png; schemes that are not `emphasised` are thin and grey."""
    attentions = list(dict.fromkeys(row.pair.attention for row in rows))
    colours = {name: COLOURS[number % len(COLOURS)][0] for number, name in enumerate(attentions)}
    schemes = [name for name in emphasised if any(row.pair.pos == name for row in rows)]
    unit = min(row.seconds for row in rows)
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # a reader's own settings must not change the figure
        matplotlib.style.use(STYLE)
        figure = Figure(figsize=(WIDE, 3.5), layout="constrained")
        FigureCanvasAgg(figure)
        time, memory = figure.subplots(1, 2)
        _panel(time, rows, colours, schemes, lambda row: row.seconds / unit)
        time.set_ylabel("Time (shortest measured = 1)")
        _panel(memory, rows, colours, schemes, lambda row: row.peak_bytes / 2**20)
        memory.set_ylabel("Peak memory (MiB)")
        figure.supxlabel("Length (tokens)", fontsize=STYLE["axes.labelsize"])
        hues = [Line2D([], [], color=colour, label=name) for name, colour in colours.items()]
        marks = [Line2D([], [], color="#4a4a4a", label=name, **_look(schemes, name)) for name in schemes]
        if any(row.pair.pos not in schemes for row in rows):
            marks.append(Line2D([], [], color=GREY, linewidth=0.6, label="other schemes"))
        columns = max(len(hues), len(marks))
        blank = [Line2D([], [], linestyle="none", label=" ")]
        filled = [line + blank * (columns - len(line)) for line in (hues, marks)]
        # A legend fills its columns first, so the handles of the two rows are passed column by column.
        handles = [handle for column in zip(*filled, strict=True) for handle in column]
        figure.legend(handles=handles, loc="outside upper center", ncols=columns, handlelength=3)
        # No date and no version, so that the same measurements give the same bytes.
        figure.savefig(folder / "attention.svg", metadata={"Date": None, "Creator": None})
        figure.savefig(folder / "attention.png", metadata={"Software": None})


def _panel(
    axes: Axes,
    rows: Sequence[Row],
    colours: dict[str, str],
    schemes: Sequence[str],
    value: Callable[[Row], float],
) -> None:
    lengths = sorted({row.length for row in rows})
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    for pair in dict.fromkeys(row.pair for row in rows):
        selected = sorted((row for row in rows if row.pair == pair), key=lambda row: row.length)
        x, y = [row.length for row in selected], [value(row) for row in selected]
        if pair.pos in schemes:
            axes.plot(x, y, color=colours[pair.attention], zorder=3, **_look(schemes, pair.pos))
        else:
            axes.plot(x, y, color=GREY, linewidth=0.6, zorder=2)
    axes.set_xticks(lengths, [f"{length // 1024}k" if length >= 1024 else str(length) for length in lengths])
    axes.xaxis.set_minor_locator(NullLocator())


def _look(schemes: Sequence[str], name: str) -> dict[str, Any]:
    number = schemes.index(name)
    dash = DASHES[number % len(DASHES)]
    return {
        "dashes": dash or (None, None),
        "marker": MARKERS[number % len(MARKERS)],
        "markeredgewidth": 0,
        "linewidth": 1.0,
    }
