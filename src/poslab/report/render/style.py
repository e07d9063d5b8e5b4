"""The style of the paper figures: sizes, fonts, and text as they show it."""

from typing import Any

WIDTH = 3.35  # inches: a column of a two-column paper
WIDE = 6.9  # both columns

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


def verbatim(text: str) -> str:
    """Text that Matplotlib does not read as mathematics."""
    return text.replace("\\", "\\\\").replace("$", r"\$") if "$" in text else text
