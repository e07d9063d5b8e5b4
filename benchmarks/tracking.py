"""Measure the cost of W&B for a run: python benchmarks/tracking.py

A step: the same training with logger=wandb and with logger=local, in turns of a few steps. Start and end: the
same short run as a complete command, with and without W&B, in turns. With server=true W&B is online, with
the stand-in server of the tests, which then uses the same cores.
"""

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import track
from rich.table import Table

from poslab.analysis.statistics import estimate
from tracking_turns import Training

ROOT = Path(__file__).parent.parent
BOUND = 1.02  # upper bound on the ratio of the time per step
EVERY = 4  # steps per validation, as in a complete run of the default size; also steps per turn
LOGGERS = ("local", "wandb")
SHORT = 4 * EVERY  # steps of a complete command
LAST_EVALUATED = "attention_distance.csv"  # the last file that a run writes before it ends
DEFAULTS = {"rounds": 5, "steps": 400, "commands": 5, "server": 0}

Times = list[dict[str, float]]  # the seconds of each turn by logger


@dataclass(frozen=True)
class Command:
    """Seconds of one command."""

    start: float  # until training began
    end: float  # from the end of evaluation, with the study's report
    whole: float


def settings(logger: str, steps: int) -> list[str]:
    """Return settings of a run of the default model with a short evaluation."""
    return [
        f"logger={logger}",
        f"trainer.max_steps={steps}",
        f"evaluate.validations={steps // EVERY}",
        "evaluate.longest=2",
        "evaluate.segments=8",
        "evaluate.sliding_windows=16",
    ]


def in_turns(steps: int, known: Mapping[str, str]) -> tuple[Times, float]:
    """Return the turns of one training of each kind, and the processor seconds of W&B's processes in them."""
    with tempfile.TemporaryDirectory() as name:
        variables = {**known, "TMPDIR": name}
        trainings: dict[str, Training] = {}
        try:
            for logger in LOGGERS:
                trainings[logger] = Training(Path(name) / logger, settings(logger, steps), EVERY, variables)
            before = trainings["wandb"].helpers_processor_seconds()
            times: Times = []
            for number in range(steps // EVERY):
                order = LOGGERS if number % 2 else reversed(LOGGERS)
                times.append({logger: trainings[logger].take_turn() for logger in order})
            return times, trainings["wandb"].helpers_processor_seconds() - before
        finally:
            for training in trainings.values():
                training.end()


def command(cwd: Path, logger: str, known: Mapping[str, str]) -> Command:
    """Time one short run as a command, in an empty directory."""
    began, clock = time.time(), time.perf_counter()
    done = subprocess.run(
        [sys.executable, str(ROOT / "train.py"), *settings(logger, SHORT)],
        cwd=cwd,
        env={**os.environ, **known},
        capture_output=True,
        text=True,
        check=False,
    )
    whole = time.perf_counter() - clock
    if done.returncode:
        raise SystemExit(done.stderr)
    (directory,) = (path.parent for path in cwd.glob("runs/*/*/manifest.json"))
    manifest = json.loads((directory / "manifest.json").read_text())
    if logger == "wandb" and manifest["wandb"]["mode"] != known["WANDB_MODE"]:
        raise SystemExit(f"W&B was not {known['WANDB_MODE']}: {manifest['wandb']}")
    end = began + whole - (directory / LAST_EVALUATED).stat().st_mtime
    inside = sum(manifest[f"seconds{of}"] for of in ("", "_validation", "_evaluation"))
    return Command(start=whole - inside - end, end=end, whole=whole)


def commands(pairs: int, known: Mapping[str, str]) -> list[dict[str, Command]]:
    """Time pairs of commands in alternating order, after one uncounted pair that fills the caches."""
    timed = []
    for number in track(range(-1, pairs), "whole commands", console=Console(stderr=True)):
        pair = {}
        for logger in LOGGERS if number % 2 else reversed(LOGGERS):
            with tempfile.TemporaryDirectory() as cwd:
                pair[logger] = command(Path(cwd), logger, known)
        timed.append(pair)
    return timed[1:]


@contextmanager
def server(online: bool) -> Iterator[dict[str, str]]:
    """Yield the environment variables with which a command finds W&B."""
    with tempfile.TemporaryDirectory() as name:
        if not online:
            yield {"WANDB_MODE": "offline", "HOME": name}
            return
        sys.path.insert(0, str(ROOT / "tests"))
        from support.wandb_server.server import serve

        with serve(Path(name)) as stand_in:
            yield {**stand_in.environment, "HOME": name}


def show_turns(times: Times, processor: float, console: Console) -> None:
    """Print the ratio of sums with the interval of the mean difference: a stalled turn counts in full."""
    local = math.fsum(turn["local"] for turn in times)
    difference = estimate([(turn["wandb"] - turn["local"]) * len(times) / local for turn in times])
    assert difference is not None
    half = difference.half_width or 0.0
    low, high = 1 + difference.mean - half, 1 + difference.mean + half
    console.print(f"A step with W&B over one without, {len(times)} turns of {EVERY} steps each:")
    console.print(f"  {1 + difference.mean:.3f}, 95 % interval {low:.3f} to {high:.3f}")
    console.print(
        f"  W&B's own processes took {processor / local:.3f} processor seconds per second of training"
    )
    verdict = "holds" if high <= BOUND else "is missed" if low > BOUND else "is undecided after these turns"
    console.print(f"  The bound of {BOUND} {verdict}.")


def show_commands(pairs: Sequence[Mapping[str, Command]], console: Console) -> None:
    """Print the additional seconds of a complete command."""
    table = Table(title=f"Additional seconds with W&B, {len(pairs)} pairs", box=SIMPLE_HEAD, pad_edge=False)
    for column in ("", "mean", "95 % interval", "ratio"):
        table.add_column(column, justify="left" if not column else "right", no_wrap=True)
    rows: dict[str, Callable[[Command], float]] = {
        "until training begins": lambda timed: timed.start,
        "after evaluation": lambda timed: timed.end,
        f"the whole command with {SHORT} steps": lambda timed: timed.whole,
    }
    for name, value in rows.items():
        more = estimate([value(pair["wandb"]) - value(pair["local"]) for pair in pairs])
        ratio = estimate([math.log(value(pair["wandb"]) / value(pair["local"])) for pair in pairs])
        assert more is not None
        assert ratio is not None
        half = more.half_width or 0.0
        interval = f"{more.mean - half:+.1f} to {more.mean + half:+.1f}"
        table.add_row(name, f"{more.mean:+.1f}", interval, f"{math.exp(ratio.mean):.2f}")
    console.print(table)


def main(arguments: list[str]) -> int:
    options = dict(DEFAULTS)
    for argument in arguments:
        key, _, value = argument.partition("=")
        value = {"true": "1", "false": "0"}.get(value, value)
        if key not in options or not value.isdecimal():
            usage = "python benchmarks/tracking.py rounds=5 steps=400 commands=5 server=false"
            print(f"{usage}, not {argument}", file=sys.stderr)
            return 2
        options[key] = int(value)
    rounds, steps, pairs = options["rounds"], options["steps"], options["commands"]
    if rounds < 1 or steps < SHORT or pairs < 2:
        print(f"choose at least rounds=1, steps={SHORT} and commands=2", file=sys.stderr)
        return 2
    if not Path("/proc/self/stat").exists():
        print("this benchmark needs /proc, which only Linux has", file=sys.stderr)
        return 2
    with server(bool(options["server"])) as known:
        times: Times = []
        processor = 0.0
        for _ in track(range(rounds), "trainings in turns", console=Console(stderr=True)):
            more, seconds = in_turns(steps, known)
            times += more
            processor += seconds
        timed = commands(pairs, known)
    console = Console(highlight=False, width=None if Console().is_terminal else 110)
    show_turns(times, processor, console)
    show_commands(timed, console)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
