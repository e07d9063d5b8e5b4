"""The least memory that a run needs, so that a run that cannot finish is refused at once.

It is a lower bound: a run is refused only if it clearly cannot fit. A run that starts may still run out of
memory, and its record then says what to change. Measured on a CPU, runs of 0.1 to 51 M parameters used 1.6 to
4.1 times the bound.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from poslab.config.registry import named_in
from poslab.config.schema import VALIDATIONS, ConfigError, RunConfig
from poslab.data import tokenizer_file
from poslab.study.launch.devices import gpu_memory
from poslab.study.launch.machine import Memory, machine_memory, size_text

INTERPRETER = 150 * 2**20  # bytes of each process for Python with PyTorch
TOKENS_A_BATCH = 4_096  # in an evaluation
LOGITS = 2**23  # computed at a time
# Settings that messages name as the ones to lower.
MODEL = "model.width, model.layers, data.vocabulary or the numbers of pos and attention"
BATCH = (
    "trainer.batch_size, context_length, data.vocabulary, model.width or model.layers, or raise "
    "trainer.accumulate"
)
SOFTMAX = "context_length, trainer.batch_size or evaluate.longest, or choose attention=flash"
LENGTH = "evaluate.longest, context_length or model.width"


class BudgetError(ConfigError):
    """A run that does not fit into memory. The message names the settings to lower."""


class Need(NamedTuple):
    """Memory that a run needs for one purpose."""

    bytes: int
    purpose: str
    settings: str  # the settings that change it


@dataclass(frozen=True)
class Size:
    """The least memory that a run needs: of each GPU, or of the machine if it uses none."""

    needs: tuple[Need, ...]
    cuda: bool

    @property
    def memory(self) -> int:
        """The memory that is needed at the same time, in bytes."""
        return sum(need.bytes for need in self.needs)


def size_of(
    config: RunConfig, parameters: int = 0, max_length: int | None = None, trained: bool = False
) -> Size:
    """Return the size of a run with a resolved configuration and `parameters` in its scheme and attention.

    `max_length` is the scheme's longest length, in tokens. With `trained`, the model is only evaluated.
    """
    model, trainer, length = config.model, config.trainer, config.context_length
    softmax = "softmax" in named_in(config.attention, "kind")
    number = 2 if trainer.precision == "bfloat16" else 4  # bytes
    vocabulary = entries(config)
    ends = vocabulary * model.width * (1 if model.tied else 2)
    # The matrices that every kind of block has: queries and output, keys and values, the MLP.
    groups = 1 if model.query_groups is None else model.query_groups / model.heads
    hidden = model.layers * round((2 + 2 * groups + 8) * model.width**2)
    weights = ends + hidden + parameters
    # Weights, gradients and two moments; Muon has only one moment for the hidden matrices.
    state = 16 * weights - (4 * hidden if trainer.optimizer == "muon" else 0)

    world = trainer.devices * trainer.nodes
    sharing = world if trainer.strategy == "fsdp" else 1  # devices over which the state is split
    windows = max(1, trainer.batch_size // (trainer.accumulate * world))
    tokens = windows * length  # at a time, in one process of the run
    blocks = 1 if trainer.recompute else model.layers  # with activations stored at the same time
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
    processes = 1 if cuda else trainer.devices  # the number that share the memory
    sizes = [
        Size(tuple(need._replace(bytes=need.bytes * processes) for need in needs), cuda)
        for needs in ((evaluation,) if trained else (training, evaluation))
    ]
    return max(sizes, key=lambda size: size.memory)


def estimate(size: Size) -> int:
    """Return the bytes that a run is likely to use, of each GPU if it uses GPUs, else of the machine.

    The estimate decides how many runs run at a time; if it is too high, this only costs time.
    """
    return INTERPRETER + round(1.5 * size.memory)


def check_memory(size: Size, local: bool = True, gigabytes: float | None = None) -> None:
    """Raise BudgetError if the run does not fit into this machine, or into its largest GPU if it uses GPUs.

    If not `local`, the run may use `gigabytes` (GiB) of another machine's memory, unknown if None.
    """
    if local:
        for memory in [machine_memory()] if not size.cuda else sorted(gpu_memory())[-1:]:
            check_fits(size, memory)
    elif gigabytes and not size.cuda:
        check_fits(size, Memory(round(gigabytes * 2**30), "launcher.memory_gb gives"))


def check_fits(size: Size, memory: Memory) -> None:
    """Raise BudgetError if the run needs more than this memory."""
    if size.memory > memory.bytes:
        largest = max(size.needs)
        raise BudgetError(
            f"the run takes at least {size_text(size.memory)} of memory, {size_text(largest.bytes)} for "
            f"{largest.purpose}, and {memory.holder} {size_text(memory.bytes)}: lower {largest.settings}"
        )


def check_steps(config: RunConfig) -> None:
    """Raise BudgetError if there are more validations than training steps."""
    steps, validations = config.trainer.max_steps, config.evaluate.validations
    if validations > steps:
        raise BudgetError(
            f"evaluate.validations={validations} is more than the {steps} training steps "
            f"(trainer.max_steps): choose evaluate.validations={min(steps, VALIDATIONS)}"
        )


def entries(config: RunConfig) -> int:
    """Return the size of the vocabulary in tokens. Raise ConfigError for a file that is not a tokenizer."""
    vocabulary = config.data.get("vocabulary")
    if isinstance(vocabulary, str) and vocabulary.endswith(".json"):  # other invalid text is refused later
        return tokenizer_file.entries(Path(vocabulary))
    return vocabulary if isinstance(vocabulary, int) else 256
