"""The table of a model that was evaluated again, for the terminal."""

import textwrap

from rich import box
from rich.table import Table
from rich.text import Text

from poslab.config.text import plain
from poslab.record.losses import TRAINED, Segments
from poslab.record.measures import mean_loss
from poslab.record.reader import Run
from poslab.report.formatting import multiple, number

PROTOCOLS = {"non_overlapping": "non-overlapping", "sliding": "sliding"}  # in the order of rows
WIDTH = 18  # of a scheme's name, in letters


def evaluation_table(run: Run) -> Table:
    """Losses by length and protocol, in nats a token, a dash where there is none."""
    lines: dict[str, Segments] = {TRAINED: run.segments}
    lines |= {name: measured.segments for name, measured in run.rescaled.items()}
    lengths = sorted({k for each in lines.values() for _, k in each})
    tokens = f"{run.context_length:,} tokens"
    caption = Text(f"Losses in nats a token in windows of each length, L = {tokens}; one run, so no interval")
    table = Table(box=box.SIMPLE_HEAD, caption=caption, caption_justify="left", padding=(0, 1, 0, 0))
    for title in ("scheme", "windows"):
        table.add_column(title, no_wrap=True)
    for k in lengths:
        table.add_column(multiple(k), justify="right", no_wrap=True)
    scheme = f"{run.pos} / {run.attention}"
    for name, segments in lines.items():
        called = scheme if name == TRAINED else f"{run.pos}, {name}"
        for place, (protocol, title) in enumerate(PROTOCOLS.items()):
            losses = [mean_loss(segments.get((protocol, k), {}).values()) for k in lengths]
            shown = "\n".join(textwrap.wrap(plain(called, 80), WIDTH)) if place == 0 else ""
            table.add_row(Text(shown), title, *map(number, losses))
    return table
