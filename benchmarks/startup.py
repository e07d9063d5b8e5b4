"""Measure the cost of a command, apart from its runs' steps, before and after a change of the code.

    python benchmarks/startup.py before=FOLDER after=FOLDER [rounds=N] [commands=run,finished,status]

FOLDER is a checkout with its own environment in .venv. `run` is one more run of a study, `finished` a study
with finished runs only. In every round each command runs once in both checkouts, which alternate in order.
The processor times of the command and its child processes are compared, so that other work on the machine
has little effect. The program prints ratios, after over before: the median over the rounds with its 95 %
interval, which needs at least six rounds.
"""

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from in_turns import ratio

FOLDERS = ("before", "after")
STEPS = 4
TINY = (
    *("data=copy", "data.tokens=60000", "context_length=32", "model.layers=1", "model.width=32"),
    *("model.heads=2", f"trainer.max_steps={STEPS}", "trainer.warmup_steps=1", "trainer.batch_size=4"),
    *("evaluate.validations=1", "evaluate.validation_windows=2", "evaluate.segments=3"),
    *("evaluate.sliding_windows=8", "evaluate.longest=8", "trainer.accelerator=cpu", "logger=local"),
)
STDLIB = ("data=stdlib", *(setting for setting in TINY if not setting.startswith("data")))


class Checkout:
    """A version of the code, with its own working directory and cache."""

    def __init__(self, folder: Path, place: Path) -> None:
        self.folder = folder.resolve()
        self.place = place
        place.mkdir()
        threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "WANDB_MODE": "offline"}
        known = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        self.environment = {**known, **threads, "HOME": str(place), "POSLAB_CACHE": str(place / "cache")}

    def seconds(self, *arguments: str) -> float:
        """Return the processor seconds of `train.py` with these arguments and of its child processes."""
        command = [str(self.folder / ".venv/bin/python"), str(self.folder / "train.py"), *arguments]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        ended = subprocess.run(
            command, cwd=self.place, env=self.environment, capture_output=True, text=True, check=False
        )
        if ended.returncode:
            raise SystemExit(f"{' '.join(command)} ended with {ended.returncode}:\n{ended.stderr}")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def study(number: int, runs: int) -> tuple[str, ...]:
    """Return the arguments of a new study with `runs` runs."""
    return ("-m", f"study=s{number}", f"seed=range({100 * number},{100 * number + runs})", *TINY)


def further_run(checkout: Checkout, number: int) -> float:
    """Return the processor seconds that each of four more runs adds to a study of two."""
    two = checkout.seconds(*study(2 * number, 2))
    return (checkout.seconds(*study(2 * number + 1, 6)) - two) / 4


COMMANDS: dict[str, Callable[[Checkout, int], float]] = {
    "run": further_run,
    "finished": lambda checkout, _: checkout.seconds("-m", "pos=rope,alibi", *STDLIB),
    "status": lambda checkout, _: checkout.seconds("status", "study=ablation"),
}


def seconds_of_round(
    checkouts: Sequence[Checkout], names: Sequence[str], number: int
) -> Iterator[tuple[str, float, float]]:
    """Yield each command with its processor seconds before and after, in round `number`."""
    for name in names:
        order = list(reversed(checkouts)) if number % 2 else list(checkouts)
        costs = {checkout.place.name: COMMANDS[name](checkout, number) for checkout in order}
        yield name, costs["before"], costs["after"]


def main(arguments: Sequence[str]) -> None:
    options = dict(argument.partition("=")[::2] for argument in arguments)
    names = options.get("commands", ",".join(COMMANDS)).split(",")
    if not {*FOLDERS} <= options.keys() <= {*FOLDERS, "rounds", "commands"} or not {*names} <= {*COMMANDS}:
        raise SystemExit(__doc__)
    with tempfile.TemporaryDirectory() as name:
        checkouts = [Checkout(Path(options[folder]), Path(name) / folder) for folder in FOLDERS]
        for checkout in checkouts:  # this writes the finished study and the bytecode
            checkout.seconds("-m", "pos=rope,alibi", *STDLIB)
        seconds: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in names}
        for number in range(1, int(options.get("rounds", 6)) + 1):
            for command, before, after in seconds_of_round(checkouts, names, number):
                seconds[command][0].append(before)
                seconds[command][1].append(after)
                print(f"round {number}: {command} {after / before:.3f}", file=sys.stderr)
    for command, (before_all, after_all) in seconds.items():
        print(f"{command}: {ratio(after_all, before_all)} of before, {len(after_all)} rounds")


if __name__ == "__main__":
    main(sys.argv[1:])
