"""Measure what evaluation saves over running every window in full: python benchmarks/evaluation.py

The plain way is the reference of the tests. Both evaluate the same untrained model of the default size on the
same random tokens, at the default lengths and with the default proportion of windows, in turns in one process
with one thread. Processor times are compared.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from in_turns import Ratio, in_turns, ratio
from poslab.config.arguments import read_options, refuse
from poslab.config.errors import UserError
from poslab.config.schema import ConfigError
from poslab.evaluation.extrapolation import extrapolate

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from support.evaluation import plain_extrapolation  # noqa: E402
from support.models import ATTENTIONS, POSITIONS, make_gpt  # noqa: E402

L, LONGEST, VOCABULARY = 128, 1024, 256
SEGMENTS, SLIDING_WINDOWS = 2, 8  # in the default proportion; few, so that turns are short
BOUND = 1.3
DEFAULTS = {"pos": "rope,alibi,t5,none", "attention": "flash,linear", "rounds": "25"}


def measure(pos: str, attention: str, rounds: int) -> Ratio:
    """Return the ratio of processor times: the plain way over poslab's evaluation."""
    gpt = make_gpt(
        POSITIONS[pos],
        ATTENTIONS[attention],
        width=128,
        context_length=L,
        vocabulary=VOCABULARY,
        dtype=torch.float32,
    )
    segments = np.random.default_rng(0).integers(0, VOCABULARY, (SEGMENTS, 2 * LONGEST + 1))
    token_bytes = np.ones(VOCABULARY, dtype=np.int64)
    ways: dict[str, Callable[[], object]] = {
        "plain": lambda: plain_extrapolation(gpt, segments, L, SLIDING_WINDOWS, token_bytes),
        "shipped": lambda: extrapolate(
            gpt, segments[:, :-1], segments[:, 1:], L, SLIDING_WINDOWS, token_bytes
        ),
    }
    seconds = in_turns(ways, rounds, torch.device("cpu"))
    return ratio(seconds["plain"], seconds["shipped"])


def show(measured: dict[tuple[str, str], Ratio], rounds: int, console: Console) -> None:
    """Print the median of each pair's ratios with its interval: a stalled machine hardly affects it."""
    title = f"Time with every window in full over time of poslab's evaluation, {L} to {LONGEST:,} tokens"
    table = Table(title=title, box=SIMPLE_HEAD, pad_edge=False)
    for column in ("scheme", "attention", "median ratio", "95 % interval", "rounds", f"at least {BOUND}"):
        table.add_column(column, justify="left" if column in ("scheme", "attention") else "right")
    for (pos, attention), over in measured.items():
        verdict = "yes" if over.low >= BOUND else "no" if over.high < BOUND else "not settled"
        interval = f"{over.low:.2f} to {over.high:.2f}"
        table.add_row(pos, attention, f"{over.median:.2f}", interval, str(rounds), verdict)
    console.print(table)


def main(arguments: list[str]) -> int:
    try:
        options = DEFAULTS | read_options(arguments, list(DEFAULTS))
        schemes, attentions = options["pos"].split(","), options["attention"].split(",")
        for group, names in ((POSITIONS, schemes), (ATTENTIONS, attentions)):
            for name in {*names} - {*group}:
                raise UserError(f"there is no {name!r}; there are {', '.join(group)}")
        if not options["rounds"].isdecimal() or int(options["rounds"]) < 2:
            raise UserError(f"rounds={options['rounds']} must be a whole number of at least 2")
    except UserError as error:
        return refuse("evaluation.py", str(error))
    torch.set_num_threads(1)
    rounds, measured = int(options["rounds"]), dict[tuple[str, str], Ratio]()
    with Progress(console=Console(stderr=True)) as bar:
        pairs = [(pos, attention) for attention in attentions for pos in schemes]
        for pos, attention in bar.track(pairs, description="pairs"):
            try:
                measured[pos, attention] = measure(pos, attention, rounds)
            except ConfigError as error:
                bar.print(f"{pos} with {attention} is left out: {error}")
    show(measured, rounds, Console(highlight=False, width=None if Console().is_terminal else 110))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
