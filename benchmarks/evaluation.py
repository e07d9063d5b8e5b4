"""What evaluation saves over running every window whole: python benchmarks/evaluation.py

The plain way is the reference of the tests. Both evaluate the same untrained model of the default size on the
same random tokens, at the default lengths and with the default proportion of windows, in turns in one process
with one thread; what is compared is processor time.
"""

import math
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from poslab.config.arguments import ArgumentError, read_options, refuse
from poslab.config.schema import ConfigError
from poslab.evaluation.extrapolation import extrapolate

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from support.evaluation import plain_extrapolation  # noqa: E402
from support.models import ATTENTIONS, POSITIONS, make_gpt  # noqa: E402

L, LONGEST, VOCABULARY = 128, 1024, 256
SEGMENTS, SLIDING_WINDOWS = 2, 8  # in the proportion of the defaults; few, so that turns are short
BOUND = 1.3
DEFAULTS = {"pos": "rope,alibi,t5,none", "attention": "flash,linear", "rounds": "25"}


def ratios(pos: str, attention: str, rounds: int, progress: Callable[[], None]) -> list[float]:
    """In each round, the processor time of the plain way over that of evaluation as it is."""
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
        "plain": lambda: plain_extrapolation(gpt, segments, L, SLIDING_WINDOWS),
        "shipped": lambda: extrapolate(gpt, segments, L, SLIDING_WINDOWS, token_bytes),
    }
    measured = []
    for number in range(-1, rounds):  # the first round fills the caches
        seconds = {}
        for name in ways if number % 2 else reversed(ways):
            clock = time.process_time()
            ways[name]()
            seconds[name] = time.process_time() - clock
        measured.append(seconds["plain"] / seconds["shipped"])
        progress()
    return measured[1:]


def interval(values: list[float]) -> tuple[float, float]:
    """The 95 % interval of the median by ranks, whatever the distribution; all values where they are few."""
    ordered, n = sorted(values), len(values)
    below = (sum(math.comb(n, number) for number in range(rank + 1)) / 2**n for rank in range(n // 2))
    rank = sum(1 for share in below if share <= 0.025)
    return ordered[max(0, rank - 1)], ordered[min(n - 1, n - rank)]


def show(measured: dict[tuple[str, str], list[float]], console: Console) -> None:
    """The median of each pair's ratios with its interval, which a stall of the machine hardly moves."""
    title = f"Running every window whole over evaluation as it is, {L} to {LONGEST:,} tokens"
    table = Table(title=title, box=SIMPLE_HEAD, pad_edge=False)
    for column in ("scheme", "attention", "median ratio", "95 % interval", "rounds", f"at least {BOUND}"):
        table.add_column(column, justify="left" if column in ("scheme", "attention") else "right")
    for (pos, attention), values in measured.items():
        low, high = interval(values)
        verdict = "yes" if low >= BOUND else "no" if high < BOUND else "not settled"
        median = f"{statistics.median(values):.2f}"
        table.add_row(pos, attention, median, f"{low:.2f} to {high:.2f}", str(len(values)), verdict)
    console.print(table)


def main(arguments: list[str]) -> int:
    try:
        options = DEFAULTS | read_options(arguments, list(DEFAULTS))
        schemes, attentions = options["pos"].split(","), options["attention"].split(",")
        for group, names in ((POSITIONS, schemes), (ATTENTIONS, attentions)):
            for name in {*names} - {*group}:
                raise ArgumentError(f"there is no {name!r}; there are {', '.join(group)}")
        if not options["rounds"].isdecimal() or int(options["rounds"]) < 2:
            raise ArgumentError(f"rounds={options['rounds']} must be a number from 2 on")
    except ArgumentError as error:
        return refuse("evaluation.py", str(error))
    torch.set_num_threads(1)
    rounds, measured = int(options["rounds"]), {}
    with Progress(console=Console(stderr=True)) as bar:
        pairs = [(pos, attention) for attention in attentions for pos in schemes]
        task = bar.add_task("rounds", total=len(pairs) * (rounds + 1))
        for pos, attention in pairs:
            try:
                measured[pos, attention] = ratios(pos, attention, rounds, lambda: bar.advance(task))
            except ConfigError as error:
                bar.print(f"{pos} with {attention} is left out: {error}")
    show(measured, Console(highlight=False, width=None if Console().is_terminal else 110))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
