"""The canvas of all paper figures: sizes, style, and files that are the same bytes each time."""

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib
import matplotlib.style
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

WIDTH = 3.35  # inches: one column of a two-column paper
WIDE = 6.9  # both columns
HEIGHT = 2.1  # of a single chart
PANEL = 1.45  # height of one of several panels
LEGEND_ROW = 0.16
SCREEN = 160  # dots per inch in a notebook

STYLE: dict[str, Any] = {
    "font.family": ["STIXGeneral", "DejaVu Sans"],  # bundled with Matplotlib: the same on all machines
    "mathtext.fontset": "stix",
    **dict.fromkeys(("font.size", "axes.labelsize"), 8.5),
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize", "legend.fontsize", "legend.title_fontsize"), 8),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.formatter.useoffset": False,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.5,
    **dict.fromkeys(("axes.linewidth", "xtick.major.width", "ytick.major.width"), 0.6),
    **dict.fromkeys(("xtick.major.size", "ytick.major.size"), 2.5),
    "lines.linewidth": 1.3,
    "lines.markersize": 3.6,
    "legend.frameon": False,
    "legend.handlelength": 2.4,
    "legend.columnspacing": 1.2,
    "savefig.dpi": 300,
    "svg.hashsalt": "poslab",
    "pdf.fonttype": 42,  # embeds TrueType fonts, as journals require
}


class PaperFigure(Figure):
    """A figure that notebooks show without pyplot, which Matplotlib's own figures need."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=SCREEN, bbox_inches="tight", pad_inches=0.03)
        return buffer.getvalue()


@contextmanager
def style() -> Iterator[None]:
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # the user's settings must not change the figure
        matplotlib.style.use(STYLE)
        yield


def settled(draw: Callable[[], Figure]) -> Figure:
    """Return the figure of `draw` in the paper style, with its layout fixed for all formats."""
    with style():
        figure = draw()
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
        return figure


def save(figure: Figure, kind: str) -> bytes:
    # No date and no version, so that the same records give the same bytes.
    metadata: dict[str, dict[str, Any]] = {
        "svg": {"Date": None, "Creator": None},
        "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
        "png": {"Software": None},
    }
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, metadata=metadata[kind], bbox_inches="tight", pad_inches=0.03)
    return buffer.getvalue()


def canvas(width: float, height: float) -> Figure:
    figure = PaperFigure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def verbatim(text: str) -> str:
    """Escape text that Matplotlib would read as mathematics."""
    return text.replace("\\", "\\\\").replace("$", r"\$") if "$" in text else text
