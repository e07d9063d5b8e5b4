"""What a run takes at least, of memory and of disk, so that none is begun that cannot come to its end.

A lower bound in bytes: what must be there at one time. So a run is refused only where it cannot fit, and one
that is let through may still run out: measured on a CPU, runs of 0.1 to 51 M parameters took 1.6 to 4.1 times
the bound in all, and 1.1 to 1.6 times what it counts beside the processes themselves. With P parameters,
D width, H heads, V vocabulary, L training length, l the longest evaluation length, B windows a batch, b of
them and t = b L tokens at a time, and s bytes a number (4; 2 in bfloat16):

    P                 V D + layers (12 D^2 + 13 D) + 2 D, and those of the scheme
    training          16 P                  weights, gradients and AdamW's two moments, in float32
                      16 s t D layers       what backward needs of each block (10 where it is compiled)
                      4 b H L^2 (layers + 1)   the weights of softmax attention, where it is written out
                      8 t V                 the logits and their softmax
                      8 B (L + 1)           the windows of a batch, int64, on the machine
    a checkpoint      16 P + 12 P           what training holds, and the file with weights and moments
    an evaluation     4 P
                      8 segments (2 l + 1), 16 segments l    tokens, their losses, windows cut from them
                      9 s D tokens + 8 V tokens              of a batch of windows in a block, and its logits
                      8 H l^2               two matrices of softmax attention, where it is written out
    disk              16 P                  the last checkpoint and the final weights

On a CPU all of it is the machine's memory, for each process of a run; on GPUs a process has one, and the
machine holds batches, checkpoints and segments. Segments and windows count as they are asked for: whether the
text has so many is not known before it is prepared.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from poslab.config.schema import MULTIPLES, VALIDATIONS, ConfigError
from poslab.study.launch.memory import Memory, free_memory, gpu_memory, machine_memory, size_text
from poslab.study.run.size import Size

INTERPRETER = 150 * 2**20  # of each process: Python with PyTorch
BLOCK = 20 * 2**10  # of each layer, whatever its width: the objects of its modules and parameters
ROW = 500  # of a row of a table while it is kept as Python's objects
TOKENS_A_BATCH = 4_096  # of an evaluation on a CPU, and no fewer on a GPU
LOGITS_A_BATCH = 2**29  # of an evaluation
MOST_PARTS = 10_000  # of a batch, that are proposed
LESS = ", or less"
SLACK = 2.0  # what is proposed takes half of what there is at most, by the same bound
# What no machine has, where runs are made elsewhere.
ELSEWHERE = Memory(64 * 2**40, "no machine has more than")
ELSEWHERE_GPU = Memory(2**40, "no GPU has more than")
# More operations a second than any CPU or GPU does, and the years that a run may take with them.
OPERATIONS = {False: 1e14, True: 1e16}
YEARS = 1

Needs = dict[str, int]  # bytes that must be there at one time, by what they are for


class BudgetError(ConfigError):
    """A run that cannot fit into memory or onto the disk. The message says which settings to lower."""


def device_needs(size: Size, trained: bool = False) -> list[Needs]:
    """What each part of a run takes of the device that computes, for one process; `trained`: to evaluate."""
    evaluation = {"parameters": 4 * size.parameters, **_evaluated(size)}
    return [evaluation] if trained else [_trained(size), evaluation]


def machine_needs(size: Size, trained: bool = False) -> list[Needs]:
    """What each part of a run takes of the machine's memory, for all of its processes there."""
    interpreters = {"processes": INTERPRETER * size.devices, "layers": BLOCK * size.layers * size.devices}
    batch = {"windows of a batch": 8 * size.batch_size * (size.context_length + 1)}
    batch["validations"] = ROW * min(size.validations, size.max_steps)
    batch["validation windows"] = 8 * size.validation_windows * (size.context_length + 1)
    checkpoint = {"a checkpoint": 12 * size.parameters}
    tables = _tables(size)
    if size.cuda:
        parts = [tables] if trained else [batch, checkpoint, tables]
    else:
        computing = device_needs(size, trained)
        parts = [{**computing[-1], **tables}]
        if not trained:
            state = {"parameters with gradients and optimizer": 16 * size.parameters}
            training = {name: bytes * size.devices for name, bytes in computing[0].items()}
            parts += [{**training, **batch}, {**state, **checkpoint}]
    return [{**interpreters, **part} for part in parts]


def _trained(size: Size) -> Needs:
    windows = max(1, size.batch_size // (size.accumulate * size.devices * size.nodes))
    tokens = windows * size.context_length
    kept = (10 if size.compiled else 16) * size.number * tokens * size.width * size.layers
    matrix = 4 * windows * size.heads * size.context_length**2
    return {
        "parameters with gradients and optimizer": 16 * size.parameters,
        "activations": kept,
        "attention weights": matrix * (size.layers + 1) if size.softmax else 0,
        "logits": 8 * tokens * size.vocabulary,
    }


def _evaluated(size: Size) -> Needs:
    longest = size.longest * size.context_length
    length = min(longest, size.max_length or longest)
    windows = max(1, min(TOKENS_A_BATCH // length, LOGITS_A_BATCH // (length * size.vocabulary)))
    tokens = windows * length
    return {
        "activations of an evaluation": 9 * size.number * size.width * tokens,
        "logits of an evaluation": 8 * tokens * size.vocabulary,
        "attention weights of an evaluation": 8 * windows * size.heads * length**2 if size.softmax else 0,
    }


def _tables(size: Size) -> Needs:
    longest = size.longest * size.context_length
    return {
        "segments": size.segments * (8 * (2 * longest + 1) + 16 * longest),
        "samples of the probe": size.samples * 8 * (2 * longest + 1),
        "rows of the probe": size.depths * size.tasks * ROW,
    }


def disk_need(size: Size) -> int:
    """Bytes that the run's folder takes at its largest."""
    return 16 * size.parameters


def estimate(size: Size) -> int:
    """The memory that a run is likely to take, of its GPU if it uses one, else of the machine: for planning
    how many run at a time, which costs nothing but time where it is too much."""
    parts = device_needs(size) if size.cuda else machine_needs(size)
    return INTERPRETER + round(1.5 * max(_sum(part) for part in parts))


@dataclass(frozen=True)
class Room:
    """What there is for a run."""

    machine: Memory
    gpus: Sequence[Memory] = ()  # of which the run's processes have one each


def room(here: bool, cuda: bool, gigabytes: float | None = None) -> Room:
    """What there is on this machine, or, if not `here`, on any; `gigabytes`: what a launcher gives a run."""
    if here:
        return Room(machine_memory(), gpu_memory() if cuda else ())
    given = gigabytes and Memory(round(gigabytes * 2**30), "launcher.memory_gb gives")
    return Room(given or ELSEWHERE, (ELSEWHERE_GPU,))


def check_memory(size: Size, there: Room, trained: bool = False, unbuilt: bool = False) -> None:
    """Raise BudgetError where the run cannot fit; `trained`: its model is there and is only evaluated.

    `unbuilt`: the scheme may be defined up to L only, which is known once it is built.
    """
    if not trained and size.validations > size.max_steps:
        raise BudgetError(
            f"evaluate.validations={size.validations} is more than the {size.max_steps} steps of training "
            f"(trainer.max_steps): choose evaluate.validations={min(size.max_steps, VALIDATIONS)}"
        )
    least = replace(size, max_length=size.context_length) if unbuilt else size
    checks: list[tuple[Callable[[Size, bool], list[Needs]], Memory]] = [(machine_needs, there.machine)]
    if size.cuda and there.gpus:
        checks.append((device_needs, max(there.gpus, key=lambda gpu: gpu.bytes)))
    for needs, memory in checks:
        most = max(needs(least, trained), key=_sum)
        if _sum(most) > memory.bytes:
            raise BudgetError(_too_large(size, needs, trained, most, memory))


def warning(size: Size) -> str | None:
    """What to say where a run fits into this machine, but not beside what is there now; else None."""
    need, free = max(_sum(part) for part in machine_needs(size)), free_memory()
    if need <= free:
        return None
    return (
        f"it takes at least {size_text(need)} of memory, and {size_text(free)} are free now: it may run out"
    )


def check_time(size: Size) -> None:
    """Raise BudgetError where the training could not end within a year on any machine: each token takes six
    operations a parameter of the blocks, forward and backward."""
    second = OPERATIONS[size.cuda] * size.devices * size.nodes
    step = 72 * size.width**2 * size.layers * size.batch_size * size.context_length
    most = YEARS * 365 * 86_400 * second / step
    if size.max_steps > most:
        years = size.max_steps / most * YEARS
        raise BudgetError(
            f"{size.max_steps:,} steps of training take more than {years:,.0f} years on any machine: "
            f"choose trainer.max_steps={_two_digits(int(most / SLACK))}, or less"
        )


def check_disk(size: Size, free: int) -> None:
    """Raise BudgetError where the run's files cannot fit; `free` is what is free, with what the run has."""
    if disk_need(size) > free:
        smaller = _remedies(size, disk_need, free / SLACK)
        raise BudgetError(
            f"the run writes at least {size_text(disk_need(size))}, a checkpoint and the weights of "
            f"{size.parameters:,} parameters, and {size_text(free)} of the disk are free: make room, "
            f"or choose {f'{smaller}, or ' if smaller else ''}runs=DIR on another disk"
        )


def _too_large(
    size: Size, needs: Callable[[Size, bool], list[Needs]], trained: bool, most: Needs, memory: Memory
) -> str:
    """What takes too much, and which settings would make it fit."""
    whole = size_text(_sum(most))
    largest = max(most, key=lambda name: most[name])
    share = size_text(most[largest])
    of_them = f", {share} of them" if share != whole else ""

    def need(other: Size) -> int:
        return max(_sum(part) for part in needs(other, trained))

    return (
        f"the run takes at least {whole} of memory{of_them} for {largest}, and {memory.holder} "
        f"{size_text(memory.bytes)}: choose "
        f"{_remedies(size, need, memory.bytes / SLACK, trained) or 'a machine with more memory'}"
    )


@dataclass(frozen=True)
class _Setting:
    """A setting that can be lowered."""

    field: str  # of Size
    name: str
    least: int = 1  # that is worth naming


LOWERED = (
    _Setting("width", "model.width", 32),
    _Setting("layers", "model.layers"),
    _Setting("context_length", "context_length", 32),
    _Setting("batch_size", "trainer.batch_size"),
    _Setting("devices", "trainer.devices"),
    _Setting("validations", "evaluate.validations"),
    _Setting("validation_windows", "evaluate.validation_windows"),
    _Setting("segments", "evaluate.segments"),
    _Setting("samples", "probe.samples"),
    _Setting("depths", "probe.depths", 2),
    _Setting("vocabulary", "data.vocabulary", 257),
)


def _remedies(size: Size, need: Callable[[Size], float], room: float, trained: bool = False) -> str | None:
    """Settings that alone are enough, the one that must be lowered most first; else several together."""
    if size.scheme_parameters and need(replace(size, scheme_parameters=0)) <= room:
        return f"a smaller {size.largest_option}"
    settings = [each for each in LOWERED if each.field == "segments" or not trained]
    found: list[tuple[float, str]] = []
    if size.softmax and not trained and need(replace(size, softmax=False)) <= room:
        found.append((math.inf, "attention=flash"))
    for setting in settings:
        factor = _factor([setting], size, need, room)
        if factor is not None:
            found.append((factor, _changes(size, _lowered(size, [setting], factor))))
    for multiple in reversed([multiple for multiple in MULTIPLES if multiple < size.longest]):
        if need(replace(size, longest=multiple)) <= room:
            found.append((size.longest / multiple, f"evaluate.longest={multiple}"))
            break
    share = size.batch_size // (size.devices * size.nodes)  # windows that can be taken one after the other
    for accumulate in range(size.accumulate + 1, 0 if trained else min(share, MOST_PARTS) + 1):
        if share % accumulate == 0 and need(replace(size, accumulate=accumulate)) <= room:
            found.append((1.0, f"trainer.accumulate={accumulate}"))
            break
    if found:
        remedies = [remedy for _, remedy in sorted(found, key=lambda each: -each[0])[:3]]
        return (" or ".join([", ".join(remedies[:-1]), remedies[-1]]) if remedies[1:] else remedies[0]) + LESS
    together: list[_Setting] = []  # those whose lowering helps most, as many as it takes, by one factor
    while rest := [each for each in settings if each not in together]:
        least = {each: need(_lowered(size, [*together, each], math.inf)) for each in rest}
        together.append(min(rest, key=lambda each: least[each]))
        factor = _factor(together, size, need, room)
        if factor is not None:
            return _changes(size, _lowered(size, together, factor)) + LESS
    return None


def _factor(
    settings: Sequence[_Setting], size: Size, need: Callable[[Size], float], room: float
) -> float | None:
    """By how much the settings must be lowered to fit; None where no lowering is enough."""
    if need(_lowered(size, settings, math.inf)) > room:
        return None
    low, high = 0.0, 50.0  # logarithms of the factor
    while high - low > 0.01:
        middle = (low + high) / 2
        fits = need(_lowered(size, settings, math.exp(middle))) <= room
        low, high = (low, middle) if fits else (middle, high)
    return math.exp(high)


def _lowered(size: Size, settings: Sequence[_Setting], factor: float) -> Size:
    """The sizes with these settings divided by `factor`, rounded down to what may be set."""
    changes: Any = {}
    for setting in settings:
        now = getattr(size, setting.field)
        value = max(setting.least, _two_digits(int(now / factor)))
        if value < now:
            changes[setting.field] = value
    lower = replace(size, **changes)
    if lower.width < lower.heads:
        lower = replace(lower, heads=lower.width // 32)
    parts = lower.accumulate * lower.devices * lower.nodes
    if lower.batch_size < parts:
        parts = lower.devices * lower.nodes
        lower = replace(lower, accumulate=1)
    batch = max(parts, lower.batch_size // parts * parts)
    return replace(lower, width=lower.width // lower.heads * lower.heads, batch_size=batch)


def _changes(size: Size, lower: Size) -> str:
    """The settings in which a lower size differs."""
    names = {each.field: each.name for each in LOWERED}
    names |= {"heads": "model.heads", "accumulate": "trainer.accumulate"}
    changed = [field for field in names if getattr(size, field) != getattr(lower, field)]
    return " with ".join(f"{names[field]}={getattr(lower, field)}" for field in changed)


def _two_digits(value: int) -> int:
    unit = int(10 ** max(0, len(str(value)) - 2))
    return value // unit * unit


def _sum(needs: Mapping[str, int]) -> int:
    return sum(needs.values())
