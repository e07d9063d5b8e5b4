"""What a model that trained on questions fetches from further back, by length of the window and depth in it.

Beside the losses, since perplexity alone is no length generalisation (Kazemnejad et al. 2023).
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from poslab.config.schema import RunConfig
from poslab.data.corpus import Corpus
from poslab.data.questions import TASKS, questions
from poslab.data.windows import extrapolation_segments
from poslab.evaluation.extrapolation import lengths_up_to, longest_length
from poslab.evaluation.losses import TOKENS_A_BATCH
from poslab.model.gpt import GPT


def retrieve(
    gpt: GPT,
    config: RunConfig,
    corpus: Corpus,
    progress: Callable[[float], None] = lambda share: None,
) -> list[dict[str, Any]]:
    """Rows of probe.csv, one a task, length and depth, of a resolved configuration.

    `exact` counts the samples whose every answer token was the most likely one, so those that greedy
    decoding would answer. Lengths that the scheme has no value for are left out.
    """
    probe = config.probe
    assert probe.samples is not None
    assert probe.depths is not None
    longest = longest_length(config)
    segments = extrapolation_segments(corpus, probe.samples, longest)
    texts = segments[np.arange(probe.samples) % len(segments)]
    lengths = lengths_up_to(longest, config.context_length, gpt.scheme.max_length)
    depths = np.linspace(0, 1, probe.depths)
    work = len(probe.tasks) * len(depths) * sum(length for _, length in lengths)
    done = 0
    rows = []
    half = config.trainer.precision == "bfloat16"
    device = torch.device(config.trainer.accelerator)
    with torch.autocast(device.type, dtype=torch.bfloat16, enabled=half):
        for name in probe.tasks:
            task = TASKS[name]
            for multiple, length in lengths:
                for depth in depths.tolist():
                    windows = questions(texts[:, -length - 1 :], task, depth)
                    losses, likeliest = answers(gpt.to(device), windows, task.length)
                    rows.append(
                        {
                            "task": name,
                            "multiple": f"{multiple:g}",
                            "length": length,
                            "depth": f"{depth:g}",
                            "samples": len(windows),
                            "exact": int(likeliest.all(axis=1).sum()),
                            "correct": int(likeliest.sum()),
                            "nll": float(losses.sum()),
                            "tokens": losses.size,
                        }
                    )
                    done += length
                    progress(done / work)
    return rows


@torch.no_grad()
def answers(
    gpt: GPT, windows: Int[np.ndarray, "N T+1"], last: int
) -> tuple[Float[np.ndarray, "N last"], Bool[np.ndarray, "N last"]]:
    """Nats of each of the last targets, and whether it was the most likely token there."""
    device = next(gpt.parameters()).device
    size = max(1, TOKENS_A_BATCH[device.type] // (windows.shape[1] - 1))
    training = gpt.training
    gpt.eval()
    losses, likeliest = [], []
    for start in range(0, len(windows), size):
        batch = torch.from_numpy(windows[start : start + size]).to(device)
        # forward, not the call: a compiled model would be compiled again for each of the many shapes
        logits = gpt.forward(batch[:, :-1], last).double()
        targets = batch[:, -last:]
        losses.append(-logits.log_softmax(dim=-1).gather(-1, targets[..., None])[..., 0].cpu())
        likeliest.append((logits.argmax(dim=-1) == targets).cpu())
    gpt.train(training)
    return torch.cat(losses).numpy(), torch.cat(likeliest).numpy()
