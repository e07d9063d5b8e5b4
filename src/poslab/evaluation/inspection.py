"""What a scheme does in a trained model: what it adds to logits, how its pairs turn, how far heads attend."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from jaxtyping import Complex, Float, Int
from torch import Tensor

from poslab.model.attention import Attention, forgotten
from poslab.model.gpt import GPT
from poslab.model.positions import Scheme

DISTANCES_AN_OCTAVE = 4
STILL = 1e-12  # radians a token: a pair that turns less does not turn

Rows = list[dict[str, Any]]
Seen = Callable[[int, Float[Tensor, "1 H T T"], Float[Tensor, "1 H T"] | None], None]


def inspect(gpt: GPT, windows: Int[np.ndarray, "N T+1"], longest: int) -> tuple[Rows, Rows, Rows, Rows]:
    """Rows of scheme_bias.csv, scheme_rotation.csv, scheme_bound.csv and attention_distance.csv.

    Distances go up to `longest` tokens, or to where the scheme ends. `windows` are text of length L with a
    target more; attention is looked at on the queries of their second half.
    """
    limit = min(longest, gpt.scheme.max_length or longest)
    device = next(gpt.parameters()).device
    gates, attended = _attended(gpt, windows)
    bias, rotation, bound = [], [], []
    if type(gpt.scheme).place is Scheme.place:  # else distances are none of tokens
        distances = spaced(limit)
        for index, layer in _different_layers(gpt):
            bias += _bias(index, layer, distances, device) + gates.get(index, [])
            turns = layer.relative_turns(torch.tensor(distances))
            if turns is not None:
                rotation += _rotation(index, layer)
                bound += [
                    {"layer": index, "distance": distance, "bound": value}
                    for distance, value in zip(distances, upper_bound(turns), strict=True)
                ]
    return bias, rotation, bound, attended


def spaced(limit: int) -> list[int]:
    """Distances 0, 1, 2, ... below `limit`, four an octave where there are more."""
    octaves = math.log2(max(limit, 2))
    steps = range(math.ceil(octaves * DISTANCES_AN_OCTAVE) + 1)
    found = {0, limit - 1, *(round(2 ** (step / DISTANCES_AN_OCTAVE)) for step in steps)}
    return sorted(distance for distance in found if 0 <= distance < limit)


def upper_bound(turns: Complex[Tensor, "C N"]) -> list[float]:
    """RoPE's upper bound of decay at each distance, over its value at distance 0, which comes first.

    The mean over pairs of |S_j|, S_j the sum of the first j pairs' turns (Su et al. 2021, section 3.4.3).
    """
    sums = turns.cumsum(dim=0).abs().mean(dim=0)
    bound: list[float] = (sums / sums[0]).tolist()
    return bound


def _different_layers(gpt: GPT) -> Iterator[tuple[int, Scheme]]:
    """The first layer of each scheme that acts in one."""
    seen: list[Scheme] = []
    for index in range(gpt.geometry.layers):
        layer = gpt.scheme.layer(index)
        if not any(layer is other for other in seen):
            seen.append(layer)
            yield index, layer


@torch.no_grad()
def _bias(index: int, layer: Scheme, distances: list[int], device: torch.device) -> Rows:
    """By a query at L - 1, or further on where the distance needs it."""
    last = layer.geometry.context_length - 1
    rows: Rows = []
    for distance in distances:
        query = torch.tensor([max(last, distance)], device=device)
        bias = layer.pairwise_bias(query, query - distance)
        if bias is None:
            return []
        heads = bias.expand(layer.geometry.heads, 1, 1)[:, 0, 0].double().tolist()
        rows += [
            {"layer": index, "head": head, "distance": distance, "bias": value}
            for head, value in enumerate(heads)
        ]
    return rows


def _rotation(index: int, layer: Scheme) -> Rows:
    turns = layer.relative_turns(torch.tensor([1]))
    assert turns is not None
    angles = turns[:, 0].angle().abs().tolist()
    return [
        {"layer": index, "pair": pair, "wavelength": 2 * math.pi / angle if angle > STILL else None}
        for pair, angle in enumerate(angles)
    ]


@torch.no_grad()
def _attended(gpt: GPT, windows: Int[np.ndarray, "N T+1"]) -> tuple[dict[int, Rows], Rows]:
    """By layer, rows of what gates take from logits in the mean; and rows of attention_distance.csv.

    Where attention has negative weights (linear, under a rotation), their size is what counts.
    """
    heads, layers = gpt.geometry.heads, gpt.geometry.layers
    length = windows.shape[1] - 1
    half = length // 2
    places = torch.arange(length)
    back = (places[:, None] - places).clamp(min=0).double()
    total = torch.zeros(layers, heads, dtype=torch.float64)
    distances = spaced(length - half)
    forgets = torch.zeros(layers, len(distances), heads, dtype=torch.float64)
    gated: set[int] = set()

    def see(index: int, weights: Tensor, log_gates: Tensor | None) -> None:
        size = weights[0, :, half:].abs().double().cpu()
        total[index] += ((size * back[half:]).sum(dim=-1) / size.sum(dim=-1)).sum(dim=-1)
        if log_gates is not None:
            gated.add(index)
            lost = forgotten(log_gates)[0].cpu()
            for place, distance in enumerate(distances):
                taken = lost[:, half:] - lost[:, half - distance : length - distance]
                forgets[index, place] += taken.mean(dim=-1)

    device = next(gpt.parameters()).device
    training = gpt.training
    gpt.eval()
    with _watched(gpt, see):
        for window in windows:
            gpt.forward(torch.from_numpy(window[None, :-1]).to(device))
    gpt.train(training)
    queries = len(windows) * (length - half)
    attended = [
        {"layer": layer, "head": head, "queries": queries, "distance": float(total[layer, head])}
        for layer in range(layers)
        for head in range(heads)
    ]
    means = forgets / len(windows)
    gates = {
        layer: [
            {"layer": layer, "head": head, "distance": distance, "bias": float(means[layer, place, head])}
            for place, distance in enumerate(distances)
            for head in range(heads)
        ]
        for layer in gated
    }
    return gates, attended


@contextmanager
def _watched(gpt: GPT, see: Seen) -> Iterator[None]:
    """Each layer's attention weights are formed and shown to `see` whenever it attends."""
    handles: list[Callable[[], None]] = []
    for index, block in enumerate(gpt.blocks):
        attention = block.attention
        assert isinstance(attention, Attention)
        handles.append(_watch(attention, index, see))
    try:
        yield
    finally:
        for remove in handles:
            remove()


def _watch(attention: Attention, index: int, see: Seen) -> Callable[[], None]:
    own = attention.attend

    def attend(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        scheme: Scheme,
        positions: Tensor,
        log_gates: Tensor | None = None,
    ) -> Tensor:
        see(index, attention.weights(q, k, scheme, positions, log_gates), log_gates)
        return own(q, k, v, scheme, positions, log_gates)

    attention.attend = attend  # type: ignore[method-assign]
    return lambda: delattr(attention, "attend")
