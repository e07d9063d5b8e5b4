"""The loss of a model on given tokens, target by target: for validation and every evaluation.

The processes of a run share the batches of an evaluation, and all of them have the results.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from poslab.config.schema import RunConfig
from poslab.model.gpt import GPT

# No effect on the result but rounding. On a CPU fewer cost more calls per token, more leave the cache.
TOKENS_A_BATCH = {"cpu": 4_096, "cuda": 65_536}
PAIRS_A_BATCH = 2**28  # of tokens: attention=softmax holds a number for each, in each head
LOGITS_A_BATCH = 2**29  # where logits are asked for: 2 GiB in float32


@contextmanager
def evaluating(gpt: GPT, hooks: Iterable[RemovableHandle] = ()) -> Iterator[None]:
    """Have a model in evaluation mode meanwhile, and remove `hooks` in the end."""
    training = gpt.training
    gpt.eval()
    try:
        yield
    finally:
        gpt.train(training)
        for hook in hooks:
            hook.remove()


def in_precision(config: RunConfig) -> torch.autocast:
    """Return the context in which a model computes in `trainer.precision`."""
    trainer = config.trainer
    return torch.autocast(trainer.accelerator, torch.bfloat16, enabled=trainer.precision == "bfloat16")


def token_losses(
    gpt: GPT,
    tokens: Int[np.ndarray, "N T"],
    targets: Int[np.ndarray, "N T"],
    last: int | None = None,
    on_batch: Callable[[int], None] = lambda tokens: None,
) -> Float[np.ndarray, "N last"]:
    """Return the negative log-likelihood in nats of each target, or of the `last` of each row.

    It is 0 where a target is UNSCORED. `on_batch` is called with the number of tokens that have gone through
    the model since its last call.
    """

    def compute(given: Int[Tensor, "B T"], asked: Int[Tensor, "B last"]) -> Float[Tensor, "B last"]:
        return gpt(given, last, targets=asked, reduction="none")

    return _computed(gpt, tokens, targets, (last or tokens.shape[1],), compute, last, sys.maxsize, on_batch)


def of_logits(
    gpt: GPT,
    tokens: Int[np.ndarray, "N T"],
    targets: Int[np.ndarray, "N T"],
    shape: tuple[int, ...],
    compute: Callable[[Float[Tensor, "B last V"], Int[Tensor, "B last"]], Tensor],
    last: int | None = None,
) -> Float[np.ndarray, "N ..."]:
    """Return what `compute` makes of the logits and the targets of each row, all or the `last` ones.

    It is given a batch of rows, and makes numbers of this `shape` of each.
    """
    most = LOGITS_A_BATCH // gpt.embedding.num_embeddings * tokens.shape[1] // (last or tokens.shape[1])

    def of_batch(given: Int[Tensor, "B T"], asked: Int[Tensor, "B last"]) -> Tensor:
        return compute(gpt(given, last), asked)

    return _computed(gpt, tokens, targets, shape, of_batch, last, most)


@torch.inference_mode()
def _computed(
    gpt: GPT,
    tokens: Int[np.ndarray, "N T"],
    targets: Int[np.ndarray, "N T"],
    shape: tuple[int, ...],
    compute: Callable[[Int[Tensor, "B T"], Int[Tensor, "B last"]], Tensor],
    last: int | None,
    most: int,
    on_batch: Callable[[int], None] = lambda tokens: None,
) -> Float[np.ndarray, "N ..."]:
    """Return what `compute` makes of the rows, of at most `most` tokens at a time, in evaluation mode.

    Each of the run's processes computes every `world`th batch, so that a row has the bits that it has in one
    process. All compute equally often: under FSDP they take part in each other's forward passes.
    """
    device = next(gpt.parameters()).device
    length = tokens.shape[1]
    size = max(1, min(TOKENS_A_BATCH[device.type], most, PAIRS_A_BATCH // length) // length)
    batches = [slice(start, start + size) for start in range(0, len(tokens), size)]
    rank, world = _process()
    result = torch.zeros(len(tokens), *shape, dtype=torch.float64)
    with evaluating(gpt):
        for first in range(0, len(batches), world):
            rows = batches[min(first + rank, len(batches) - 1)]
            given, asked = (torch.from_numpy(part[rows]).to(device) for part in (tokens, targets))
            found = compute(given, asked if last is None else asked[:, -last:])
            if first + rank < len(batches):
                result[rows] = found.double().cpu()
            on_batch(sum(tokens[batch].size for batch in batches[first : first + world]))
    if world > 1:
        gathered = result.to(device)  # NCCL has no memory of the processor
        torch.distributed.all_reduce(gathered)  # exact: of each number all but one are 0
        result = gathered.cpu()
    return result.numpy()


def _process() -> tuple[int, int]:
    """Return the number of this process among those of the run, and how many they are."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return 0, 1
