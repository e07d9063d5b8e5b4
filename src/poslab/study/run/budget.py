"""The least memory and disk that a run takes, so that one that cannot end is refused at once.

Both are lower bounds: a run is refused where it clearly cannot fit, and one that has begun may still run out
of memory, and its record then says what to change. Measured on a CPU, runs of 0.1 to 51 M parameters took 1.6
to 4.1 times the bound.
"""

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from poslab.config.registry import named_in
from poslab.config.schema import VALIDATIONS, ConfigError, RunConfig
from poslab.data import tokenizer_file
from poslab.study.launch.devices import gpu_memory
from poslab.study.launch.machine import Memory, machine_memory, size_text

INTERPRETER = 150 * 2**20  # bytes of each process: Python with PyTorch
TOKENS_A_BATCH = 4_096  # of an evaluation
LOGITS = 2**23  # at a time
# Settings that a message names.
MODEL = "model.width, model.layers, data.vocabulary or the numbers of pos and attention"
BATCH = (
    "trainer.batch_size, context_length, data.vocabulary, model.width or model.layers, or raise "
    "trainer.accumulate"
)
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
    """What a run takes at least: of each of its GPUs, of the machine where it uses none, and of the disk."""

    needs: tuple[Need, ...]
    cuda: bool
    disk: int  # bytes: the last checkpoint and the final weights

    @property
    def memory(self) -> int:
        """Bytes in all."""
        return sum(need.bytes for need in self.needs)


def size_of(
    config: RunConfig, parameters: int = 0, max_length: int | None = None, trained: bool = False
) -> Size:
    """Return the size of a resolved configuration with `parameters` in its scheme and attention.

    The scheme is defined for `max_length` tokens. `trained`: the model exists and is only evaluated.
    """
    model, trainer, length = config.model, config.trainer, config.context_length
    softmax = "softmax" in named_in(config.attention, "kind")
    number = 2 if trainer.precision == "bfloat16" else 4  # bytes
    vocabulary = entries(config)
    ends = vocabulary * model.width * (1 if model.tied else 2)
    # Of a block the matrices that every kind has: queries and output, keys and values, the perceptron.
    groups = 1 if model.query_groups is None else model.query_groups / model.heads
    hidden = model.layers * round((2 + 2 * groups + 8) * model.width**2)
    weights = ends + hidden + parameters
    # Weights, gradients and two moments; Muon has one moment of the hidden matrices.
    state = 16 * weights - (4 * hidden if trainer.optimizer == "muon" else 0)

    world = trainer.devices * trainer.nodes
    sharing = world if trainer.strategy == "fsdp" else 1  # devices that have the state in parts
    windows = max(1, trainer.batch_size // (trainer.accumulate * world))
    tokens = windows * length  # at a time, in one of the run's processes
    blocks = 1 if trainer.recompute else model.layers  # of which all is stored at a time
    stored = (10 if trainer.compile is True else 16) * number  # bytes for backward, per token and block
    training = (
        Need(state // sharing, "parameters with gradients and optimizer", MODEL),
        Need(stored * tokens * model.width * blocks, "activations", BATCH),
        Need(softmax * 4 * windows * model.heads * length**2 * blocks, "attention weights", SOFTMAX),
        Need(8 * min(tokens * vocabulary, LOGITS), "logits", BATCH),
    )
    longest = min(int(config.evaluate.longest) * length, max_length or sys.maxsize)
    together = max(1, TOKENS_A_BATCH // longest)  # windows
    evaluated = 9 * number * model.width  # bytes per token
    evaluation = (
        Need(4 * weights, "parameters", MODEL),
        Need(together * longest * evaluated, "activations of an evaluation", LENGTH),
        Need(
            softmax * 8 * together * model.heads * longest**2, "attention weights of an evaluation", SOFTMAX
        ),
    )
    cuda = trainer.accelerator == "cuda"
    processes = 1 if cuda else trainer.devices  # that share the memory
    sizes = [
        Size(tuple(need._replace(bytes=need.bytes * processes) for need in needs), cuda, state)
        for needs in ((evaluation,) if trained else (training, evaluation))
    ]
    return max(sizes, key=lambda size: size.memory)


def estimate(size: Size) -> int:
    """Return the bytes that a run is likely to take, of its GPU if it uses one, else of the machine.

    They decide how many runs run at a time; too high an estimate costs only time.
    """
    return INTERPRETER + round(1.5 * size.memory)


def check_memory(size: Size, local: bool = True, gigabytes: float | None = None) -> None:
    """Raise BudgetError where the run cannot fit into this machine or its largest GPU.

    If not `local`, the launcher gives it `gigabytes` of another machine, as far as that is known.
    """
    if local:
        for memory in [machine_memory()] if not size.cuda else sorted(gpu_memory())[-1:]:
            check_fits(size, memory)
    elif gigabytes and not size.cuda:
        check_fits(size, Memory(round(gigabytes * 2**30), "launcher.memory_gb gives"))


def check_fits(size: Size, memory: Memory) -> None:
    """Raise BudgetError where the run takes more than this memory."""
    if size.memory > memory.bytes:
        most = max(size.needs)
        raise BudgetError(
            f"the run takes at least {size_text(size.memory)} of memory, {size_text(most.bytes)} of them for "
            f"{most.purpose}, and {memory.holder} {size_text(memory.bytes)}: lower {most.settings}"
        )


def check_steps(config: RunConfig) -> None:
    """Raise BudgetError where there are more validations than steps."""
    steps, validations = config.trainer.max_steps, config.evaluate.validations
    if validations > steps:
        raise BudgetError(
            f"evaluate.validations={validations} is more than the {steps} steps of training "
            f"(trainer.max_steps): choose evaluate.validations={min(steps, VALIDATIONS)}"
        )


def check_disk(size: Size, directory: Path) -> None:
    """Raise BudgetError where the disk has no room for the run's files; its present ones count as free."""
    existing = next(folder for folder in (directory, *directory.absolute().parents) if folder.exists())
    free = shutil.disk_usage(existing).free
    free += sum(path.stat().st_size for path in directory.glob("**/*") if path.is_file())
    if size.disk > free:
        raise BudgetError(
            f"the run writes at least {size_text(size.disk)}, a checkpoint and the weights, and "
            f"{size_text(free)} of the disk are free: make room, choose runs=DIR on another disk, or lower "
            f"{MODEL}"
        )


def entries(config: RunConfig) -> int:
    """Return the number of tokens of a vocabulary. Raises ConfigError for a file that is no tokenizer."""
    vocabulary = config.data.get("vocabulary")
    if isinstance(vocabulary, str) and vocabulary.endswith(".json"):  # another word is refused later
        return tokenizer_file.entries(Path(vocabulary))
    return vocabulary if isinstance(vocabulary, int) else 256
