"""The loss of a model on given tokens, target by target: for validation and every evaluation."""

import sys
from collections.abc import Callable, Iterator

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from poslab.model.gpt import GPT

# No effect on the result but rounding. On a CPU fewer cost more calls a token, more leave the cache.
TOKENS_A_BATCH = {"cpu": 4_096, "cuda": 65_536}
LOGITS_A_BATCH = 2**29  # where logits are asked for: 2 GiB in float32


@torch.inference_mode()
def token_losses(
    gpt: GPT,
    tokens: Int[np.ndarray, "N T"],
    targets: Int[np.ndarray, "N T"],
    last: int | None = None,
    on_batch: Callable[[int], None] = lambda tokens: None,
) -> Float[np.ndarray, "N last"]:
    """Return the negative log-likelihood in nats of each target, or of the `last` of each row.

    It is 0 where a target is UNSCORED. `on_batch` is called with the number of tokens that went through the
    model in each batch.
    """
    losses = [torch.empty(0, tokens.shape[1] if last is None else last, dtype=torch.float64)]
    for given, scored in _batches(gpt, tokens, targets, last, most=sys.maxsize):
        losses.append(gpt(given, last, targets=scored, reduction="none").double().cpu())
        on_batch(given.numel())
    return torch.cat(losses).numpy()


def batched_logits(
    gpt: GPT, tokens: Int[np.ndarray, "N T"], targets: Int[np.ndarray, "N T"], last: int | None
) -> Iterator[tuple[Float[Tensor, "B last V"], Int[Tensor, "B last"]]]:
    """Yield the logits and the targets of each batch of rows, all or the `last` ones, in evaluation mode."""
    most = LOGITS_A_BATCH // gpt.embedding.num_embeddings * tokens.shape[1] // (last or tokens.shape[1])
    for given, scored in _batches(gpt, tokens, targets, last, most):
        yield gpt(given, last), scored


def _batches(
    gpt: GPT, tokens: Int[np.ndarray, "N T"], targets: Int[np.ndarray, "N T"], last: int | None, most: int
) -> Iterator[tuple[Int[Tensor, "B T"], Int[Tensor, "B last"]]]:
    """Yield tokens and targets of batches of rows, each of at most `most` tokens, in evaluation mode."""
    device = next(gpt.parameters()).device
    size = max(1, min(TOKENS_A_BATCH[device.type], most) // tokens.shape[1])
    training = gpt.training
    gpt.eval()
    for start in range(0, len(tokens), size):
        given, scored = (
            torch.from_numpy(rows[start : start + size]).to(device) for rows in (tokens, targets)
        )
        yield given, scored if last is None else scored[:, -last:]
    gpt.train(training)
