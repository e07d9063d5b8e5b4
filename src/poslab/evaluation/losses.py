"""The loss of a model on given windows, token by token: for validation and every evaluation."""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from poslab.model.gpt import GPT

# No effect on the result but rounding. On a CPU fewer cost more calls a token, more leave the cache.
TOKENS_A_BATCH = {"cpu": 4_096, "cuda": 65_536}
LOGITS_A_BATCH = 2**29  # 2 GiB in float32, which a large vocabulary would pass with so many tokens


@torch.inference_mode()
def token_losses(
    gpt: GPT,
    windows: Int[np.ndarray, "N T+1"],
    last: int | None = None,
    on_batch: Callable[[int], None] = lambda tokens: None,
) -> Float[np.ndarray, "N last"]:
    """Negative log-likelihood in nats of each target (each window shifted by one), or of the `last` ones.

    `on_batch` is called with the number of tokens that went through the model in each batch.
    """
    losses = [torch.empty(0, windows.shape[1] - 1 if last is None else last, dtype=torch.float64)]
    for logits, targets in batched_logits(gpt, windows, last):
        wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
        flat = cross_entropy(wide.flatten(0, 1), targets.flatten(), reduction="none")
        losses.append(flat.reshape(targets.shape).double().cpu())
        on_batch(len(targets) * (windows.shape[1] - 1))
    return torch.cat(losses).numpy()


def batched_logits(
    gpt: GPT, windows: Int[np.ndarray, "N T+1"], last: int | None
) -> Iterator[tuple[Float[Tensor, "B last V"], Int[Tensor, "B last"]]]:
    """The logits and the targets of each batch of windows, all or the `last` ones, in evaluation mode."""
    device = next(gpt.parameters()).device
    length = windows.shape[1] - 1
    fitting = LOGITS_A_BATCH // ((last or length) * gpt.embedding.num_embeddings)
    size = max(1, min(TOKENS_A_BATCH[device.type] // length, fitting))
    training = gpt.training
    gpt.eval()
    for start in range(0, len(windows), size):
        batch = torch.from_numpy(windows[start : start + size]).to(device)
        logits: Tensor = gpt(batch[:, :-1], last)
        yield logits, batch[:, 1:] if last is None else batch[:, -last:]
    gpt.train(training)
