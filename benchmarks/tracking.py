"""What W&B costs a run: python benchmarks/tracking.py pairs=5 steps=100

The same training with logger=wandb and logger=local, each as a command in an empty directory, in turns. With
server=true W&B is online, at the stand-in that the tests use, which then works on the same cores.
"""

import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import exp, log
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from poslab.report.statistics import estimate

ROOT = Path(__file__).parent.parent
BOUND = 1.02  # of the time a step
EVERY = 4  # steps a validation, as in a whole run of the default size
LOGGERS = ("local", "wandb")
LAST_EVALUATED = "attention_distance.csv"  # what a run writes last before it ends


@dataclass(frozen=True)
class Timed:
    """Seconds of one command."""

    step: float  # on average over training
    later: float  # a step, without the first quarter of training
    start: float  # until training began
    end: float  # from the end of evaluation, with the study's report
    whole: float


def command(cwd: Path, logger: str, steps: int, known: Mapping[str, str]) -> Timed:
    """One run of the default model and what its record says of it."""
    settings = [
        f"logger={logger}",
        f"trainer.max_steps={steps}",
        f"trainer.warmup_steps={min(40, steps // 2)}",
        f"evaluate.validations={steps // EVERY}",
        "evaluate.longest=2",
        "evaluate.segments=8",
        "evaluate.sliding_windows=16",
    ]
    began, clock = time.time(), time.perf_counter()
    done = subprocess.run(
        [sys.executable, str(ROOT / "train.py"), *settings],
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
    with (directory / "metrics.csv").open(newline="") as file:
        reached = [(int(row["step"]), float(row["seconds"])) for row in csv.DictReader(file)]
    first, last = reached[len(reached) // 4 - 1], reached[-1]
    end = began + whole - (directory / LAST_EVALUATED).stat().st_mtime
    inside = sum(manifest[f"seconds{of}"] for of in ("", "_validation", "_evaluation"))
    return Timed(
        step=last[1] / last[0],
        later=(last[1] - first[1]) / (last[0] - first[0]),
        start=whole - inside - end,
        end=end,
        whole=whole,
    )


@contextmanager
def server(wanted: bool) -> Iterator[dict[str, str]]:
    """What a command has to know of W&B."""
    with tempfile.TemporaryDirectory() as name:
        if not wanted:
            yield {"WANDB_MODE": "offline", "HOME": name}
            return
        sys.path.insert(0, str(ROOT / "tests"))
        from wandb_server import serve

        with serve(Path(name)) as stand_in:
            yield {**stand_in.environment, "HOME": name}


def measure(pairs: int, steps: int, known: Mapping[str, str]) -> list[dict[str, Timed]]:
    """Pairs of commands; who begins takes turns. An earlier one of a few steps fills the caches."""
    found = []
    for number in range(-1, pairs):
        pair = {}
        for logger in LOGGERS if number % 2 else reversed(LOGGERS):
            with tempfile.TemporaryDirectory() as cwd:
                pair[logger] = command(Path(cwd), logger, steps if number >= 0 else 4 * EVERY, known)
        if number >= 0:
            found.append(pair)
            print(f"pair {number + 1} of {pairs}", file=sys.stderr)
    return found


def ratio(
    pairs: Sequence[Mapping[str, Timed]], value: Callable[[Timed], float]
) -> tuple[float, float, float]:
    """The geometric mean of the ratios with W&B to without, and its 95 % interval."""
    found = estimate([log(value(pair["wandb"]) / value(pair["local"])) for pair in pairs])
    assert found is not None
    half = found.half_width or 0.0
    return exp(found.mean), exp(found.mean - half), exp(found.mean + half)


def show(pairs: Sequence[Mapping[str, Timed]], steps: int) -> None:
    console = Console(highlight=False, width=None if Console().is_terminal else 110)
    table = Table(
        title=f"With W&B over without, {len(pairs)} pairs of {steps} steps", box=SIMPLE_HEAD, pad_edge=False
    )
    for column in ("", "ratio", "95 % interval", "seconds more"):
        table.add_column(column, justify="left" if not column else "right", no_wrap=True)
    rows: dict[str, tuple[Callable[[Timed], float], bool]] = {
        "time a step": (lambda timed: timed.step, False),
        "time a step, first quarter left out": (lambda timed: timed.later, False),
        "until training begins": (lambda timed: timed.start, True),
        "after evaluation": (lambda timed: timed.end, True),
        "the whole command": (lambda timed: timed.whole, True),
    }
    for name, (value, absolute) in rows.items():
        mean, low, high = ratio(pairs, value)
        more = ""
        if absolute:
            found = estimate([value(pair["wandb"]) - value(pair["local"]) for pair in pairs])
            assert found is not None
            more = f"{found.mean:+.1f} ± {found.half_width or 0:.1f}"
        table.add_row(name, f"{mean:.3f}", f"{low:.3f} to {high:.3f}", more)
    console.print(table)
    _, low, high = ratio(pairs, lambda timed: timed.step)
    held = "holds" if high <= BOUND else "is missed" if low > BOUND else "is not settled by so many pairs"
    console.print(f"The bound of {BOUND} on the time a step {held}.")


def main(arguments: list[str]) -> int:
    options = {"pairs": 5, "steps": 100, "server": 0}
    for argument in arguments:
        key, _, value = argument.partition("=")
        value = {"true": "1", "false": "0"}.get(value, value)
        if key not in options or not value.isdecimal():
            print(
                f"python benchmarks/tracking.py pairs=5 steps=100 server=false, not {argument}",
                file=sys.stderr,
            )
            return 2
        options[key] = int(value)
    if options["pairs"] < 2 or options["steps"] < 4 * EVERY:
        print(f"pairs=2 and steps={4 * EVERY} are the fewest", file=sys.stderr)
        return 2
    with server(bool(options["server"])) as known:
        found = measure(options["pairs"], options["steps"], known)
    show(found, options["steps"])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
