"""The table of a model that was evaluated again, for the terminal."""

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from poslab.config.text import plain
from poslab.record import losses as sums
from poslab.record.losses import TRAINED, Segments
from poslab.record.measures import mean_loss
from poslab.report.formatting import multiple, number

PROTOCOLS = {"non_overlapping": "non-overlapping", "sliding": "sliding"}  # in the order of rows
WIDTH = 18  # of a scheme's name, in letters


def evaluation_table(directory: Path, manifest: Mapping[str, Any]) -> Table:
    """Losses by length and protocol, in nats a token, a dash where there is none. Raises ReportError."""
    lines: dict[str, Segments] = {TRAINED: sums.segments(directory / "extrapolation.csv")}
    if "rescaled.csv" in manifest["files"]:
        found = sums.rescaled(directory / "rescaled.csv", directory / "rescaled_position.csv")
        lines |= {name: each.segments for name, each in found.items()}
    lengths = sorted({k for each in lines.values() for _, k in each})
    tokens = f"{manifest['config']['context_length']:,} tokens"
    caption = Text(f"Losses in nats a token in windows of each length, L = {tokens}; one run, so no interval")
    table = Table(box=box.SIMPLE_HEAD, caption=caption, caption_justify="left", padding=(0, 1, 0, 0))
    for title in ("scheme", "windows"):
        table.add_column(title, no_wrap=True)
    for k in lengths:
        table.add_column(multiple(k), justify="right", no_wrap=True)
    scheme = f"{manifest['pos']} / {manifest['attention']}"
    for name, segments in lines.items():
        called = scheme if name == TRAINED else f"{manifest['pos']}, {name}"
        for place, (protocol, title) in enumerate(PROTOCOLS.items()):
            losses = [mean_loss(segments.get((protocol, k), {}).values()) for k in lengths]
            shown = "\n".join(textwrap.wrap(plain(called, 80), WIDTH)) if place == 0 else ""
            table.add_row(Text(shown), title, *map(number, losses))
    return table
