"""How well a model that trained on questions retrieves their answers, by window length and depth in it.

A low perplexity past the training length does not show that a model uses the longer context (Kazemnejad et
al. 2023), so this is measured beside the losses.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from poslab.config.schema import RunConfig, longest_length
from poslab.data.corpus import Corpus
from poslab.data.questions import TASKS, questions
from poslab.data.windows import extrapolation_segments
from poslab.evaluation.extrapolation import lengths_up_to
from poslab.evaluation.losses import batched_logits
from poslab.model.gpt import GPT


def retrieve(
    gpt: GPT,
    config: RunConfig,
    corpus: Corpus,
    progress: Callable[[float], None] = lambda share: None,
) -> list[dict[str, Any]]:
    """Rows of probe.csv, one a task, length and depth, as a resolved configuration chooses them.

    `exact` counts the samples whose every answer token was the most likely one, which are those that greedy
    decoding would answer. Lengths past the scheme's `max_length` are left out.
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
                    rows.append(_row(name, multiple, length, depth, losses, likeliest))
                    done += length
                    progress(done / work)
    return rows


def _row(
    task: str,
    multiple: float,
    length: int,
    depth: float,
    losses: Float[np.ndarray, "N answer"],
    likeliest: Bool[np.ndarray, "N answer"],
) -> dict[str, Any]:
    return {
        "task": task,
        "multiple": f"{multiple:g}",
        "length": length,
        "depth": f"{depth:g}",
        "samples": len(losses),
        "exact": int(likeliest.all(axis=1).sum()),
        "correct": int(likeliest.sum()),
        "nll": float(losses.sum()),
        "tokens": losses.size,
    }


@torch.inference_mode()
def answers(
    gpt: GPT, windows: Int[np.ndarray, "N T+1"], last: int
) -> tuple[Float[np.ndarray, "N last"], Bool[np.ndarray, "N last"]]:
    """The loss in nats of each of the `last` targets, and whether it was the most likely token."""
    losses, likeliest = [], []
    for logits, targets in batched_logits(gpt, windows, last):
        wide = logits.double()
        losses.append(-wide.log_softmax(dim=-1).gather(-1, targets[..., None])[..., 0].cpu())
        likeliest.append((wide.argmax(dim=-1) == targets).cpu())
    return torch.cat(losses).numpy(), torch.cat(likeliest).numpy()
