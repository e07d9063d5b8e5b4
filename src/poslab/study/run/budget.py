"""The least memory, disk and time that a run takes, so that a run that cannot end is refused at once.

All are lower bounds: a run is refused where it clearly cannot fit, and one that has begun may still run out
of memory, and its record then says what to change. Measured on a CPU, runs of 0.1 to 51 M parameters took 1.6
to 4.1 times the bound.
"""

import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from poslab.config.schema import (
    VALIDATIONS,
    ConfigError,
    ModelOptions,
    RunConfig,
    is_tokenizer_file,
    swiglu_width,
)
from poslab.data import tokenizer_file
from poslab.study.launch.memory import Memory, free_memory, gpu_memory, machine_memory, size_text

INTERPRETER = 150 * 2**20  # bytes of each process: Python with PyTorch
TOKENS_A_BATCH = 4_096  # of an evaluation
LOGITS_A_BATCH = 2**29
# More than any machine has, for runs on other machines.
ELSEWHERE = Memory(64 * 2**40, "no machine has more than")
ELSEWHERE_GPU = Memory(2**40, "no GPU has more than")
# Operations per second, more than those of any CPU or GPU.
OPERATIONS = {"cpu": 1e14, "cuda": 1e16}
YEAR = 365 * 86_400  # seconds
# Settings that a message names.
MODEL = "model.width, model.layers, data.vocabulary or the numbers of pos and attention"
BATCH = "trainer.batch_size, context_length or data.vocabulary, or raise trainer.accumulate"
ACTIVATIONS = "trainer.batch_size, context_length, model.width or model.layers, or raise trainer.accumulate"
SOFTMAX = "context_length, trainer.batch_size or evaluate.longest, or choose attention=flash"
LENGTH = "evaluate.longest, context_length or model.width"


class BudgetError(ConfigError):
    """A run that cannot fit into memory or onto the disk. The message says which settings to lower."""


class Need(NamedTuple):
    """Memory that a run needs at one time."""

    bytes: int
    purpose: str
    settings: str  # that lower it


@dataclass(frozen=True)
class Size:
    """What a run takes at least: of the machine, of each of its GPUs (nothing on a CPU) and of the disk."""

    machine: tuple[Need, ...]
    gpu: tuple[Need, ...]
    disk: int  # bytes: the last checkpoint and the final weights


def size_of(
    config: RunConfig, parameters: int = 0, max_length: int | None = None, trained: bool = False
) -> Size:
    """Return the size of a resolved configuration with `parameters` in its scheme and attention.

    The scheme is defined for `max_length` tokens. `trained`: the model exists and is only evaluated.
    """
    model, trainer, length = config.model, config.trainer, config.context_length
    softmax, number = config.attention.get("kind") == "softmax", 2 if trainer.precision == "bfloat16" else 4
    vocabulary = _entries(config)
    ends = vocabulary * model.width * (1 if model.tied else 2)
    weights = ends + model.layers * _matrices(model) + parameters

    windows = max(1, trainer.batch_size // (trainer.accumulate * trainer.devices * trainer.nodes))
    tokens = windows * length  # at a time, in one of the run's processes
    stored = (10 if trainer.compile is True else 16) * number  # bytes for backward, per token and block
    training = (
        Need(16 * weights, "parameters with gradients and optimizer", MODEL),
        Need(stored * tokens * model.width * model.layers, "activations", ACTIVATIONS),
        Need(softmax * 4 * windows * model.heads * length**2 * model.layers, "attention weights", SOFTMAX),
        Need(8 * tokens * vocabulary, "logits", BATCH),
    )
    longest = min(int(config.evaluate.longest) * length, max_length or sys.maxsize)
    together = max(1, min(TOKENS_A_BATCH, LOGITS_A_BATCH // vocabulary) // longest)  # windows
    evaluated = 9 * number * model.width + 8 * vocabulary  # bytes per token
    evaluation = (
        Need(4 * weights, "parameters", MODEL),
        Need(together * longest * evaluated, "activations of an evaluation", LENGTH),
        Need(
            softmax * 8 * together * model.heads * longest**2, "attention weights of an evaluation", SOFTMAX
        ),
    )
    computing = evaluation if trained else max(training, evaluation, key=_sum)
    processes = Need(INTERPRETER * trainer.devices, "processes", "trainer.devices")
    batch = Need(0 if trained else 8 * trainer.batch_size * (length + 1), "a batch", BATCH)
    if trainer.accelerator == "cuda":
        return Size((processes, batch), computing, 16 * weights)
    of_all = (need._replace(bytes=need.bytes * trainer.devices) for need in computing)
    return Size((processes, batch, *of_all), (), 16 * weights)


def _matrices(model: ModelOptions) -> int:
    """Return the parameters of a block's matrices."""
    width, groups = model.width, model.query_groups or model.heads
    of_keys = width // model.heads * groups
    attention = width * (2 * width + 2 * of_keys + (width if model.output_gate else 0))
    perceptron = 3 * width * swiglu_width(width) if model.mlp == "swiglu" else 8 * width**2
    return attention + perceptron


def estimate(size: Size) -> int:
    """Return the bytes that a run is likely to take, of its GPU if it uses one, else of the machine.

    They decide how many runs run at a time; too high an estimate costs only time.
    """
    return INTERPRETER + round(1.5 * _sum(size.gpu or size.machine))


def check_memory(size: Size, local: bool = True, gigabytes: float | None = None) -> None:
    """Raise BudgetError where the run cannot fit into this machine or, if not `local`, into any machine.

    `gigabytes` is the memory that a launcher gives a run on another machine.
    """
    gpu = max(gpu_memory(), key=lambda gpu: gpu.bytes, default=None) if local and size.gpu else ELSEWHERE_GPU
    machine = machine_memory() if local else ELSEWHERE
    if gigabytes and not local:
        machine = Memory(round(gigabytes * 2**30), "launcher.memory_gb gives")
    for needs, memory in ((size.machine, machine), (size.gpu, gpu)):
        if memory is not None and (whole := _sum(needs)) > memory.bytes:
            most = max(needs)
            raise BudgetError(
                f"the run takes at least {size_text(whole)} of memory, {size_text(most.bytes)} of them for "
                f"{most.purpose}, and {memory.holder} {size_text(memory.bytes)}: lower {most.settings}"
            )


def warning(size: Size) -> str | None:
    """Return a warning where a run fits into this machine, but not into its free memory; else None."""
    need, free = _sum(size.machine), free_memory()
    if need <= free:
        return None
    return (
        f"it takes at least {size_text(need)} of memory, and {size_text(free)} are free now: it may run out"
    )


def check_steps(config: RunConfig) -> None:
    """Raise BudgetError where there are more validations than steps, or training takes over a year anywhere.

    Each token takes six operations per parameter of the blocks, forward and backward.
    """
    trainer, model, validations = config.trainer, config.model, config.evaluate.validations
    if validations > trainer.max_steps:
        raise BudgetError(
            f"evaluate.validations={validations} is more than the {trainer.max_steps} steps of training "
            f"(trainer.max_steps): choose evaluate.validations={min(trainer.max_steps, VALIDATIONS)}"
        )
    tokens = trainer.max_steps * trainer.batch_size * config.context_length
    per_second = OPERATIONS[trainer.accelerator] * trainer.devices * trainer.nodes
    years = 72 * model.width**2 * model.layers * tokens / per_second / YEAR
    if years > 1:
        raise BudgetError(
            f"{trainer.max_steps:,} steps of training take more than {years:,.0f} years on any machine: "
            "lower trainer.max_steps"
        )


def check_disk(size: Size, directory: Path) -> None:
    """Raise BudgetError where the disk has no room for the run's files; its present ones count as free."""
    existing = next(folder for folder in (directory, *directory.absolute().parents) if folder.exists())
    free = shutil.disk_usage(existing).free
    if size.disk < free:
        return
    free += sum(path.stat().st_size for path in directory.glob("**/*") if path.is_file())
    if size.disk > free:
        raise BudgetError(
            f"the run writes at least {size_text(size.disk)}, a checkpoint and the weights, and "
            f"{size_text(free)} of the disk are free: make room, choose runs=DIR on another disk, or lower "
            f"{MODEL}"
        )


def _entries(config: RunConfig) -> int:
    """Return the number of tokens of a vocabulary. Raises ConfigError for a file that is no tokenizer."""
    vocabulary = config.data.get("vocabulary")
    if is_tokenizer_file(vocabulary):
        return tokenizer_file.entries(Path(str(vocabulary)))
    return vocabulary if isinstance(vocabulary, int) else 256


def _sum(needs: Iterable[Need]) -> int:
    return sum(need.bytes for need in needs)
