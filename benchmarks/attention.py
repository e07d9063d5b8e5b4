"""Measure time and memory of every attention under every scheme: python benchmarks/attention.py"""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

USAGE = """\
Measure time and peak memory of attention, forward and backward, by sequence length.

  python benchmarks/attention.py [pos=...] [attention=...] [shortest=512] [longest=32768] [rounds=5]
                                 [threads=1] [device=cpu] [memory=GB] [out=DIR]

  pos        options of conf/pos, such as pos=none,t5; default: one of each scheme
  attention  options of conf/attention; default: all
  shortest   the first length; lengths double from it
  longest    the last length
  rounds     measurements per pair and length, of which the shortest counts; fewer for slow pairs
  threads    threads for PyTorch
  device     cpu or cuda
  memory     GB that one measurement may use; default: 80 % of the free memory
  out        folder for the results; default: benchmarks/results
"""
HERE = Path(__file__).parent
SHOWN = ("none", "rope", "alibi", "t5", "fox")
NUMBERS = {"shortest": 512, "longest": 32_768, "rounds": 5, "threads": 1}
KEYS = ("pos", "attention", *NUMBERS, "device", "memory", "out")
LONGEST_EXACT = 8192  # softmax has three T x T matrices at once: 3.2 GB here
LONGEST_EXACT_OTHERS = 4096
LONGEST_OTHERS = 8192

Section = Mapping[str, Any]


class UsageError(ValueError):
    """Error raised for an invalid command; the message is one line."""


@dataclass(frozen=True)
class Command:
    """The options of the command line, validated."""

    pos: tuple[str, ...]  # empty: one option for each scheme
    attention: tuple[str, ...]  # empty: all
    lengths: tuple[int, ...]
    rounds: int
    threads: int
    device: str
    memory: float
    out: Path


def parse(arguments: list[str]) -> Command:
    """Parse and validate the command line. Raises UsageError."""
    options: dict[str, str] = {}
    for argument in arguments:
        key, equals, value = argument.lstrip("-").partition("=")
        if key not in KEYS or not equals:
            raise UsageError(
                f"{argument!r} is not an option; options are {', '.join(f'{name}=...' for name in KEYS)}"
            )
        if not value:
            raise UsageError(f"{key}= has no value")
        if key in options:
            raise UsageError(f"{key} is given twice")
        options[key] = value
    numbers = {key: _whole(key, options.get(key, str(default))) for key, default in NUMBERS.items()}
    lengths = [numbers["shortest"]]
    while lengths[-1] < numbers["longest"]:
        lengths.append(2 * lengths[-1])
    if lengths[-1] != numbers["longest"]:
        raise UsageError(
            f"longest={numbers['longest']} is not reached by doubling shortest={numbers['shortest']}"
        )
    device = options.get("device", "cpu")
    if device not in ("cpu", "cuda"):
        raise UsageError(f"device={device} is unknown; there are cpu, cuda")
    try:
        memory = float(options.get("memory", "inf"))
    except ValueError:
        memory = 0.0
    if not memory > 0:
        raise UsageError(f"memory={options['memory']} is not a number above 0")
    return Command(
        _named("pos", options),
        _named("attention", options),
        tuple(lengths),
        numbers["rounds"],
        numbers["threads"],
        device,
        memory,
        Path(options.get("out", HERE / "results")),
    )


def _whole(key: str, value: str) -> int:
    if not value.isascii() or not value.isdigit() or int(value) < 1:
        raise UsageError(f"{key}={value} is not a whole number of 1 or more")
    return int(value)


def _named(group: str, options: Mapping[str, str]) -> tuple[str, ...]:
    if group not in options:
        return ()
    names = tuple(options[group].split(","))
    arms = sorted(path.stem for path in (HERE.parent / "conf" / group).glob("*.yaml"))
    for name in names:
        if name not in arms:
            raise UsageError(f"{group}={name} is unknown; there are {', '.join(arms)}")
    return tuple(dict.fromkeys(names))


def sections(group: str, names: tuple[str, ...]) -> dict[str, Section]:
    """Return a group's named options; by default all attentions, or one option per scheme, SHOWN first."""
    from poslab.config.compose import arms, one_for_each_scheme

    every = arms(HERE.parent / "conf" / group)
    if names:
        return {name: every[name] for name in names}
    if group == "attention":
        return dict(every)
    chosen = one_for_each_scheme(every)
    return {name: chosen[name] for name in sorted(chosen, key=lambda name: (name not in SHOWN, name))}


def main(arguments: list[str]) -> int:
    """Return the exit code: 0, even if a bound is missed; 2 or 130, if stopped, with one line on stderr."""
    if {"-h", "--help", "help"} & set(arguments):
        print(USAGE, end="")
        return 0
    try:
        command = parse(arguments)
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # otherwise the profiler prints a line each time
        return measure_all(command)
    except UsageError as error:
        print(f"attention.py: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(
            f"attention.py: {error.strerror or error}: {error.filename or ''}".rstrip(": "), file=sys.stderr
        )
        return 2
    except KeyboardInterrupt:
        print("attention.py: stopped; finished lengths are in the table", file=sys.stderr)
        return 130


def measure_all(command: Command) -> int:
    import torch

    from attention_figure import draw
    from attention_growth import Row, exponents, write_exponents, write_rows
    from attention_rounds import Runner
    from attention_tables import show
    from poslab.study.display.run_bar import RunDisplay

    if command.device == "cuda" and not torch.cuda.is_available():
        raise UsageError("device=cuda, but PyTorch finds no CUDA device here")
    jobs, refused, shortened = plan(command)
    if not jobs:
        raise UsageError("; ".join(refused))
    command.out.mkdir(parents=True, exist_ok=True)
    runner = Runner(jobs, command.rounds, command.threads, command.device, command.memory)
    display = RunDisplay("attention")
    order = {job.pair: number for number, job in enumerate(jobs)}
    rows: list[Row] = []
    with display.phase("time and memory"):
        for _ in runner.run(command.lengths, display.share):
            rows = sorted(runner.rows, key=lambda row: (order[row.pair], row.length))
            write_rows(command.out / "attention.csv", rows)
    if not rows:
        raise UsageError(f"nothing could be measured: {runner.omissions[0].reason}")
    fitted = exponents(rows)
    write_exponents(command.out / "exponents.csv", fitted)
    draw(rows, command.pos or SHOWN, command.out)
    show(rows, fitted, [*refused, *shortened], runner.omissions)
    print(f"\n{command.out / 'attention.csv'}, exponents.csv, attention.svg, attention.png")
    return 0


def plan(command: Command) -> tuple[list[Any], list[str], list[str]]:
    """Return the pairs to measure, and lines on pairs that do not work or stop at shorter lengths."""
    from attention_growth import Pair
    from attention_rounds import Job
    from attention_trial import adds_to_logits, build
    from poslab.config.schema import ConfigError

    jobs, refused = [], []
    stops: dict[tuple[int, str], list[str]] = {}
    for pos, pos_section in sections("pos", command.pos).items():
        for attention, attention_section in sections("attention", command.attention).items():
            try:
                _, layer, built = build(pos_section, attention_section, command.lengths[0])
            except ConfigError as error:
                refused.append(f"{attention}+{pos}: {error}")
                continue
            pair = Pair(pos, attention, built.form)
            limit, reason = command.lengths[-1], ""
            named = pos in SHOWN or bool(command.pos)
            if built.form == "exact" and not named:
                limit, reason = LONGEST_EXACT_OTHERS, "it is slow, and other schemes show how it grows"
            elif built.form == "exact":
                limit, reason = LONGEST_EXACT, "its matrices"
            elif built.form == "fused" and not layer.by_distance:
                limit, reason = LONGEST_OTHERS, "a bias by both positions, computed for every pair of tokens"
            elif built.form == "fused" and not (named or adds_to_logits(layer)):
                limit, reason = LONGEST_OTHERS, "for the kernel it is the same as none and rope"
            if limit < command.lengths[-1]:
                stops.setdefault((limit, reason), []).append(pair.label)
            jobs.append(Job(pair, pos_section, attention_section, limit))
    shortened = [
        f"{', '.join(labels)}: only up to {limit:,} ({reason})" for (limit, reason), labels in stops.items()
    ]
    return jobs, refused, shortened


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
