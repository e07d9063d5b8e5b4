"""Losses of a model, target by target, for validation and every evaluation.

The processes of a run share the batches of an evaluation, and each of them has all results.
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

# Affects results only by rounding. On a CPU, fewer cost more calls per token, and more exceed the cache.
TOKENS_A_BATCH = {"cpu": 4_096, "cuda": 65_536}
PAIRS_A_BATCH = 2**28  # pairs of tokens: attention=softmax stores a number for each, in each head
LOGITS_A_BATCH = 2**29  # if logits are needed: 2 GiB in float32


@contextmanager
def evaluating(gpt: GPT, hooks: Iterable[RemovableHandle] = ()) -> Iterator[None]:
    """Put the model in evaluation mode for the duration of the block, and remove `hooks` when it ends."""
    training = gpt.training
    gpt.eval()
    try:
        yield
    finally:
        gpt.train(training)
        for hook in hooks:
            hook.remove()


def in_precision(config: RunConfig) -> torch.autocast:
    """Return a context manager under which a model computes in `trainer.precision`."""
    trainer = config.trainer
    return torch.autocast(trainer.accelerator, torch.bfloat16, enabled=trainer.precision == "bfloat16")


def token_losses(
    gpt: GPT,
    tokens: Int[np.ndarray, "N T"],
    targets: Int[np.ndarray, "N T"],
    last: int | None = None,
    on_batch: Callable[[int], None] = lambda tokens: None,
) -> Float[np.ndarray, "N last"]:
    """Return each target's negative log-likelihood in nats; with `last`, only of a row's last `last` targets.

    It is 0 if a target is UNSCORED. `on_batch` is called with the number of tokens that the model has
    processed since the previous call.
    """

    def compute(inputs: Int[Tensor, "B T"], scored: Int[Tensor, "B last"]) -> Float[Tensor, "B last"]:
        return gpt(inputs, last, targets=scored, reduction="none")

    return _computed(gpt, tokens, targets, (last or tokens.shape[1],), compute, last, sys.maxsize, on_batch)


def of_logits(
    gpt: GPT,
    tokens: Int[np.ndarray, "N T"],
    targets: Int[np.ndarray, "N T"],
    shape: tuple[int, ...],
    compute: Callable[[Float[Tensor, "B last V"], Int[Tensor, "B last"]], Tensor],
    last: int | None = None,
) -> Float[np.ndarray, "N ..."]:
    """Return what `compute` returns for the logits and targets of each row, all of them or the `last` ones.

    `compute` receives a batch of rows, and returns numbers of this `shape` for each row.
    """
    limit = LOGITS_A_BATCH // gpt.embedding.num_embeddings * tokens.shape[1] // (last or tokens.shape[1])

    def of_batch(inputs: Int[Tensor, "B T"], scored: Int[Tensor, "B last"]) -> Tensor:
        return compute(gpt(inputs, last), scored)

    return _computed(gpt, tokens, targets, shape, of_batch, last, limit)


@torch.inference_mode()
def _computed(
    gpt: GPT,
    tokens: Int[np.ndarray, "N T"],
    targets: Int[np.ndarray, "N T"],
    shape: tuple[int, ...],
    compute: Callable[[Int[Tensor, "B T"], Int[Tensor, "B last"]], Tensor],
    last: int | None,
    limit: int,
    on_batch: Callable[[int], None] = lambda tokens: None,
) -> Float[np.ndarray, "N ..."]:
    """Return what `compute` returns for the rows, in evaluation mode and batches of at most `limit` tokens.

    Each of the run's processes computes every `world`th batch, so a row has the same bits as in a single
    process. All compute equally often, since under FSDP they take part in each other's forward passes.
    """
    device = next(gpt.parameters()).device
    length = tokens.shape[1]
    size = max(1, min(TOKENS_A_BATCH[device.type], limit, PAIRS_A_BATCH // length) // length)
    batches = [slice(start, start + size) for start in range(0, len(tokens), size)]
    rank, world = _process()
    result = torch.zeros(len(tokens), *shape, dtype=torch.float64)
    with evaluating(gpt):
        for first in range(0, len(batches), world):
            rows = batches[min(first + rank, len(batches) - 1)]
            inputs, scored = (torch.from_numpy(part[rows]).to(device) for part in (tokens, targets))
            computed = compute(inputs, scored if last is None else scored[:, -last:])
            if first + rank < len(batches):
                result[rows] = computed.double().cpu()
            on_batch(sum(tokens[batch].size for batch in batches[first : first + world]))
    if world > 1:
        gathered = result.to(device)  # NCCL cannot use the memory of the CPU
        torch.distributed.all_reduce(gathered)  # exact: each number is 0 in all processes but one
        result = gathered.cpu()
    return result.numpy()


def _process() -> tuple[int, int]:
    """Return this process's rank in the run, and the number of its processes."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return 0, 1
