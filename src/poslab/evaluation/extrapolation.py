"""Losses at the training length and past it; lengths are multiples of L.

Three protocols are recorded, as sums of token negative log-likelihoods (nats) with token and byte counts:

- non_overlapping: windows of length l side by side (Press et al. 2022, section 2);
- sliding: a sample of windows of length l at stride L/8, scoring only the last stride of tokens (their
  appendix B), so that every scored token has at least l - L/8 tokens before it;
- matched: the non-overlapping losses of the targets that the sliding windows score.

In windows of the longest length, the loss is also recorded by position: in the non-overlapping windows, and
in every fourth sliding window, which is scored over its whole length for this.

If tokens see later ones, as under a masked objective, there is no sliding protocol: it is meant for targets
with only earlier tokens as context. The targets of a segment are chosen once, for all lengths.

The scored targets are the same at every length: the second half of each segment. The first half is only
context. So two lengths differ only in the context, and no target lacks context because the data begin there.

No window is run twice. The first half of a non-overlapping window is itself a window of half the length, if
no token depends on later ones or on their number (`length_dependent`). A sliding window may be a
non-overlapping one.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from poslab.config.schema import MULTIPLES, RunConfig, longest_length, rescaled_by
from poslab.data.corpus import Corpus
from poslab.data.segments import extrapolation_segments
from poslab.evaluation.losses import in_precision, token_losses
from poslab.model.gpt import GPT
from poslab.model.positions import Scheme
from poslab.model.rescaling import Rescaling
from poslab.objectives import UNSCORED, build_objective

EVALUATED = (0.5, *MULTIPLES)  # multiples of L, each twice the previous one
# Every fourth of the longest sliding windows adds to the loss by position. They start at other places than
# the non-overlapping ones, so a hard stretch of text weighs less on a single position.
WHOLE = 4


@dataclass
class Extrapolation:
    """Rows of extrapolation.csv and position.csv."""

    lengths: list[dict[str, Any]] = field(default_factory=list)
    positions: list[dict[str, Any]] = field(default_factory=list)


def evaluate(
    gpt: GPT,
    config: RunConfig,
    corpus: Corpus,
    progress: Callable[[float], None] = lambda share: None,
    rescaling: Rescaling | None = None,
) -> Extrapolation:
    """Evaluate a trained model by length, as a resolved configuration specifies, in `trainer.precision`.

    With a `rescaling`, the scheme rotates by other frequencies during the evaluation.
    """
    segments, documents = extrapolation_segments(
        corpus, config.evaluate.segments, longest_length(config), config.evaluate.documents
    )
    tokens, targets = build_objective(config.objective).of_evaluation(segments, corpus.vocabulary)
    gpt.scheme.rescale(rescaling)
    try:
        with in_precision(config):
            result = extrapolate(
                gpt.to(config.trainer.accelerator),
                tokens,
                targets,
                config.context_length,
                config.evaluate.sliding_windows,
                corpus.token_bytes,
                progress,
            )
    finally:
        gpt.scheme.rescale(None)
    for row in result.lengths:
        row["document"] = int(documents[row["segment"]])
    return result


def rescalings(config: RunConfig) -> list[Rescaling]:
    """Return the other rotations under which a resolved configuration evaluates a trained model."""
    factor = config.evaluate.rescale_factor
    return [Rescaling(method, 1.0 if factor == "auto" else factor) for method in rescaled_by(config)]


def changes_rotation(scheme: Scheme, rescaling: Rescaling, longest: int) -> bool:
    """Return whether a rescaling changes queries in any layer, in windows of up to `longest` tokens."""
    geometry = scheme.geometry
    positions = scheme.place(min(longest, scheme.max_length or longest), None)
    probe = torch.ones(1, geometry.heads, len(positions), geometry.head_width)

    def rotated() -> list[Tensor]:
        layers = [scheme.layer(index) for index in range(geometry.layers)]
        return [layer.rotate_queries(layer.logit_features(probe), positions) for layer in layers]

    before = rotated()
    scheme.rescale(rescaling)
    after = rotated()
    scheme.rescale(None)
    return not all(torch.equal(*pair) for pair in zip(before, after, strict=True))


def extrapolate(
    model: GPT,
    tokens: Int[np.ndarray, "N 2l"],
    targets: Int[np.ndarray, "N 2l"],
    context_length: int,
    sliding_windows: int,
    token_bytes: Int[np.ndarray, "V"],
    progress: Callable[[float], None] = lambda share: None,
) -> Extrapolation:
    """Score the targets of segments, each twice the longest length, at every length that fits.

    Lengths past the scheme's `max_length` are left out. Scoring every target in sliding windows would cost 8
    l / L times as much as tiling, so only `sliding_windows` windows are scored, spread over all segments. The
    tiled losses of the same targets are recorded as "matched", so that the two protocols can be compared on
    the same tokens. `progress` is called with the completed share of the work.
    """
    count, longest = len(tokens), tokens.shape[1] // 2
    second = targets[:, longest:]
    causal = model.geometry.causal
    lengths = lengths_up_to(longest, context_length, model.scheme.max_length)
    top = lengths[-1][1]
    stride = max(1, context_length // 8)
    segment, block = spread(count, longest // stride, sliding_windows if causal else 0)
    slid = segment[:, None], block[:, None] * stride + np.arange(stride)  # the targets of each window
    ends = (block + 1) * stride
    every_tile = model.scheme.length_dependent or not causal
    work = sum(
        count * longest // (1 if every_tile or length == top else 2) + (ends % length != 0).sum() * length
        for _, length in lengths
    )
    done = 0

    def on_batch(tokens: int) -> None:
        nonlocal done
        done += tokens
        progress(done / work)

    result = Extrapolation()
    tiled = np.empty(0)
    for multiple, length in reversed(lengths):
        longer = None if every_tile or length == top else tiled
        tiled = _tiled_losses(model, tokens, targets, length, longer, on_batch)
        sliding = tiled[slid]
        single = np.flatnonzero(ends % length)  # the other windows end where a tile ends, and equal that tile
        whole = single[::WHOLE] if length == top else single[:0]
        rest = np.setdiff1d(single, whole)
        inputs, scored = _windows(tokens, targets, segment[whole], ends[whole], length)
        losses = token_losses(model, inputs, scored, on_batch=on_batch)
        sliding[whole] = losses[:, -stride:]
        remaining = _windows(tokens, targets, segment[rest], ends[rest], length)
        sliding[rest] = token_losses(model, *remaining, stride, on_batch)
        at = f"{multiple:g}", length
        result.lengths[:0] = [  # shorter lengths come first
            *_rows("non_overlapping", *at, np.arange(count), tiled, second, token_bytes),
            *_rows("sliding", *at, segment, sliding, second[slid], token_bytes),
            *_rows("matched", *at, segment, tiled[slid], second[slid], token_bytes),
        ]
        if length == top:
            result.positions = _position_rows(
                np.concatenate([tiled.reshape(-1, length), losses]),
                np.concatenate([second.reshape(-1, length), scored]),
                token_bytes,
            )
    return result


def _tiled_losses(
    model: GPT,
    tokens: Int[np.ndarray, "N 2l"],
    targets: Int[np.ndarray, "N 2l"],
    length: int,
    longer: Float[np.ndarray, "N l"] | None,
    on_batch: Callable[[int], None],
) -> Float[np.ndarray, "N l"]:
    """Return the losses of all targets in windows of `length` tokens side by side.

    `longer` has the losses in windows twice as long. Pass it if the first half of such a window has the same
    losses as a window of `length`: then only every second window is run.
    """
    count, longest = len(tokens), tokens.shape[1] // 2
    step = length if longer is None else 2 * length
    ends = np.arange(step, longest + 1, step)
    segment = np.arange(count).repeat(len(ends))
    windows = _windows(tokens, targets, segment, np.tile(ends, count), length)
    losses = token_losses(model, *windows, on_batch=on_batch).reshape(count, -1, length)
    if longer is not None:
        losses = np.concatenate([longer.reshape(count, -1, step)[..., :length], losses], axis=-1)
    return losses.reshape(count, longest)


def lengths_up_to(longest: int, context_length: int, limit: int | None) -> list[tuple[float, int]]:
    """Return the evaluation lengths as multiples of L and in tokens, up to the scheme's `limit`, if any."""
    return [
        (multiple, int(multiple * context_length))
        for multiple in EVALUATED
        if multiple * context_length % 1 == 0  # an odd L has no half
        and multiple * context_length <= min(longest, limit or longest)
    ]


def spread(
    segments: int, blocks: int, count: int
) -> tuple[Int[np.ndarray, "count"], Int[np.ndarray, "count"]]:
    """Return `count` different (segment, block) pairs, spread evenly over segments and over places in them.

    Multiples of the golden ratio modulo 1 fill an interval evenly at every count. Pairs that coincide are
    taken once, so there may be slightly fewer than `count`. If there are at most `count`, return all pairs.
    """
    total = segments * blocks
    if count >= total:
        picked = np.arange(total)
    else:
        golden = (5**0.5 - 1) / 2
        picked = np.unique((np.arange(count) * golden % 1 * total).astype(int))
    return picked // blocks, picked % blocks


def _windows(
    tokens: Int[np.ndarray, "N 2l"],
    targets: Int[np.ndarray, "N 2l"],
    segment: Int[np.ndarray, "E"],
    ends: Int[np.ndarray, "E"],
    length: int,
) -> tuple[Int[np.ndarray, "E length"], Int[np.ndarray, "E length"]]:
    """Return the tokens and targets of windows in these segments that end at `ends` in the scored half."""
    starts = tokens.shape[1] // 2 + ends - length
    window = segment[:, None], starts[:, None] + np.arange(length)
    return tokens[window], targets[window]


def _rows(
    protocol: str,
    multiple: str,
    length: int,
    segment: Int[np.ndarray, "N"],
    losses: Float[np.ndarray, "N T"],
    targets: Int[np.ndarray, "N T"],
    token_bytes: Int[np.ndarray, "V"],
) -> list[dict[str, Any]]:
    """Return rows of extrapolation.csv, one per segment; `segment` is that of each row of `losses`."""
    scored = {number: targets[segment == number] for number in np.unique(segment)}
    scored = {number: tokens[tokens != UNSCORED] for number, tokens in scored.items()}
    return [
        {
            "protocol": protocol,
            "multiple": multiple,
            "length": length,
            "segment": int(number),
            "nll": float(losses[segment == number].sum()),
            "tokens": tokens.size,
            "bytes": int(token_bytes[tokens].sum()),
        }
        for number, tokens in scored.items()
    ]


def _position_rows(
    losses: Float[np.ndarray, "N T"], targets: Int[np.ndarray, "N T"], token_bytes: Int[np.ndarray, "V"]
) -> list[dict[str, Any]]:
    """Return rows of position.csv."""
    scored = targets != UNSCORED
    counted = np.where(scored, token_bytes[np.where(scored, targets, 0)], 0)
    columns = zip(losses.sum(axis=0), scored.sum(axis=0), counted.sum(axis=0), strict=True)
    return [
        {"position": position, "nll": float(nll), "tokens": int(tokens), "bytes": int(spelled)}
        for position, (nll, tokens, spelled) in enumerate(columns)
        if tokens
    ]
