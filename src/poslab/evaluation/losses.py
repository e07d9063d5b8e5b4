"""The loss of a model on given tokens, target by target: for validation and every evaluation."""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from poslab.model.gpt import GPT
from poslab.objectives import UNSCORED

# No effect on the result but rounding. On a CPU fewer cost more calls a token, more leave the cache.
TOKENS_A_BATCH = {"cpu": 4_096, "cuda": 65_536}
LOGITS_A_BATCH = 2**29  # 2 GiB in float32, which a large vocabulary would pass with so many tokens


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
    for logits, scored in batched_logits(gpt, tokens, targets, last):
        wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
        flat = cross_entropy(wide.flatten(0, 1), scored.flatten(), reduction="none", ignore_index=UNSCORED)
        losses.append(flat.reshape(scored.shape).double().cpu())
        on_batch(len(scored) * tokens.shape[1])
    return torch.cat(losses).numpy()


def batched_logits(
    gpt: GPT, tokens: Int[np.ndarray, "N T"], targets: Int[np.ndarray, "N T"], last: int | None
) -> Iterator[tuple[Float[Tensor, "B last V"], Int[Tensor, "B last"]]]:
    """Yield the logits and the targets of each batch of rows, all or the `last` ones, in evaluation mode."""
    device = next(gpt.parameters()).device
    length = tokens.shape[1]
    fitting = LOGITS_A_BATCH // ((last or length) * gpt.embedding.num_embeddings)
    size = max(1, min(TOKENS_A_BATCH[device.type] // length, fitting))
    training = gpt.training
    gpt.eval()
    for start in range(0, len(tokens), size):
        given, scored = (
            torch.from_numpy(rows[start : start + size]).to(device) for rows in (tokens, targets)
        )
        logits: Tensor = gpt(given, last)
        yield logits, scored if last is None else scored[:, -last:]
    gpt.train(training)
