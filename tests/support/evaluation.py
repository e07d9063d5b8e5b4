"""Extrapolation the plain way: every window is run whole, though other windows have the same losses."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy, linear

from poslab.evaluation.extrapolation import lengths_up_to, spread
from poslab.measures import Trained
from poslab.model.gpt import GPT

TOKENS_A_BATCH = 4096


def trained(
    gpt: Any, context_length: int, text: np.ndarray, documents: np.ndarray, /, **evaluate: Any
) -> Trained:
    """Return a model of 50 tokens with a made-up text, as passed to measurements; `evaluate` are settings."""
    config = SimpleNamespace(
        context_length=context_length,
        objective={"kind": "causal"},
        evaluate=SimpleNamespace(**evaluate),
        trainer=SimpleNamespace(accelerator="cpu", precision="float32"),
    )
    corpus = SimpleNamespace(validation=text, validation_documents=documents, vocabulary=50, name="made_up")
    shown = SimpleNamespace(phase=lambda name: nullcontext())
    return Trained(gpt, config, corpus, shown, lambda: None)  # type: ignore[arg-type]


def examples(windows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the tokens and targets of the causal objective."""
    return windows[:, :-1], windows[:, 1:]


def plain_losses(gpt: GPT, windows: np.ndarray, last: int | None = None) -> np.ndarray:
    """Compute what `token_losses` returns, from the output of every block for every token."""
    size, losses = max(1, TOKENS_A_BATCH // (windows.shape[1] - 1)), []
    with torch.no_grad():
        for start in range(0, len(windows), size):
            batch = torch.from_numpy(windows[start : start + size])
            positions = gpt.scheme.place(windows.shape[1] - 1, None)
            gpt.scheme.read_tokens(batch[:, :-1])
            x = gpt.scheme.embed(gpt.embedding(batch[:, :-1]), positions)
            for index, block in enumerate(gpt.blocks):
                x = block(x, gpt.scheme.layer(index), positions)
            targets = batch[:, 1:]
            if last is not None:
                x, targets = x[:, -last:], targets[:, -last:]
            logits = linear(gpt.norm(x), gpt.embedding.weight)
            flat = cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
            losses.append(flat.reshape(targets.shape).double())
    return torch.cat(losses).numpy()


def plain_extrapolation(
    gpt: GPT, segments: np.ndarray, context_length: int, sliding_windows: int, token_bytes: np.ndarray
) -> tuple[dict[tuple[str, str, int], dict[str, Any]], list[np.ndarray]]:
    """Return the sums by protocol, multiple of L and segment, as in extrapolation.csv.

    The second value has the windows of the longest length, non-overlapping and sliding.
    """
    count, longest = len(segments), segments.shape[1] // 2
    lengths = lengths_up_to(longest, context_length, gpt.scheme.max_length)
    stride = max(1, context_length // 8)
    segment, block = spread(count, longest // stride, sliding_windows)
    targets, every = segments[:, longest + 1 :], np.arange(count)
    slid = segment[:, None], block[:, None] * stride + np.arange(stride)
    sums = {}

    def add(protocol: str, k: float, segment: np.ndarray, losses: np.ndarray, targets: np.ndarray) -> None:
        for number in np.unique(segment):
            scored = segment == number
            sums[protocol, f"{k:g}", int(number)] = {
                "nll": losses[scored].sum(),
                "tokens": losses[scored].size,
                "bytes": token_bytes[targets[scored]].sum(),
            }

    for multiple, length in lengths:
        starts = np.arange(longest, 2 * longest, length)
        tiles = segments[:, starts[:, None] + np.arange(length + 1)].reshape(-1, length + 1)
        starts = longest + (block + 1) * stride - length
        windows = segments[segment[:, None], starts[:, None] + np.arange(length + 1)]
        tiled = plain_losses(gpt, tiles).reshape(targets.shape)
        add("non_overlapping", multiple, every, tiled, targets)
        add("sliding", multiple, segment, plain_losses(gpt, windows, stride), targets[slid])
        add("matched", multiple, segment, tiled[slid], targets[slid])
    return sums, [tiles, windows]
