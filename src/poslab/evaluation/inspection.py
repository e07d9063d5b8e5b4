"""Inspect a scheme in a trained model: its bias on logits, how its pairs turn, how far heads attend."""

import math
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Complex, Int
from torch import Tensor

from poslab.evaluation.losses import evaluating
from poslab.model.attention import Attention, cumulative_log_gates
from poslab.model.attention.linear import Linear
from poslab.model.gpt import GPT
from poslab.model.positions import Scheme

DISTANCES_AN_OCTAVE = 4
STILL = 1e-12  # radians per token: a pair that turns less counts as not turning

Rows = list[dict[str, Any]]


class Inspection(NamedTuple):
    """Rows of the tables of a record that describe a trained scheme."""

    bias: Rows  # scheme_bias.csv
    rotation: Rows  # scheme_rotation.csv
    bound: Rows  # scheme_bound.csv
    attention_distance: Rows  # attention_distance.csv
    denominators: Rows  # rotated_denominators.csv, for linear attention under a rotation


def inspect(gpt: GPT, windows: Int[np.ndarray, "N T+1"], longest: int) -> Inspection:
    """Inspect the scheme of a trained model, and its attention in `windows` of text of length L.

    Distances go up to `longest` tokens, or up to the scheme's `max_length`. Attention is measured for the
    queries in each window's second half.
    """
    limit = min(longest, gpt.scheme.max_length or longest)
    device = next(gpt.parameters()).device
    by_content, *of_attention = _attention(gpt, windows)
    tables = Inspection([], [], [], *of_attention)
    if gpt.scheme.overrides("place"):  # the scheme's distances are not distances in tokens
        return tables
    distances = spaced(limit)
    for index, layer in _different_layers(gpt):
        tables.bias.extend(_bias(index, layer, distances, device) + by_content.get(index, []))
        rotations = layer.relative_rotation(torch.tensor(distances))
        if rotations is not None:
            tables.rotation.extend(_rotation(index, layer))
            tables.bound.extend(
                {"layer": index, "distance": distance, "bound": value}
                for distance, value in zip(distances, upper_bound(rotations), strict=True)
            )
    return tables


def spaced(limit: int) -> list[int]:
    """Return distances 0, 1, 2, ... below `limit`, four per octave where there are more, and `limit` - 1."""
    octaves = math.log2(max(limit, 2))
    steps = range(math.ceil(octaves * DISTANCES_AN_OCTAVE) + 1)
    distances = {0, limit - 1, *(round(2 ** (step / DISTANCES_AN_OCTAVE)) for step in steps)}
    return sorted(distance for distance in distances if 0 <= distance < limit)


def upper_bound(rotations: Complex[Tensor, "C N"]) -> list[float]:
    """Return RoPE's upper bound of decay at each distance, divided by the first one, that at distance 0.

    It is the mean over pairs of |S_j|; S_j sums the first j pairs' rotations (Su et al. 2021, section 3.4.3).
    """
    sums = rotations.cumsum(dim=0).abs().mean(dim=0)
    return (sums / sums[0]).tolist()


def _different_layers(gpt: GPT) -> Iterator[tuple[int, Scheme]]:
    """Yield each scheme that acts in a layer with attention, with the index of its first such layer."""
    seen: list[Scheme] = []
    for index in range(gpt.geometry.layers):
        layer, block = gpt.scheme.layer(index), gpt.blocks[index]
        if isinstance(block.attention, Attention) and not any(layer is known for known in seen):
            seen.append(layer)
            yield index, layer


@torch.no_grad()
def _bias(index: int, layer: Scheme, distances: list[int], device: torch.device) -> Rows:
    """Return the bias at each distance, on a query at position L - 1 or, if larger, at that distance."""
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
    rotations = layer.relative_rotation(torch.tensor([1]))
    assert rotations is not None
    angles = rotations[:, 0].angle().abs().tolist()
    return [
        {"layer": index, "pair": pair, "wavelength": 2 * math.pi / angle if angle > STILL else None}
        for pair, angle in enumerate(angles)
    ]


@torch.no_grad()
def _attention(gpt: GPT, windows: Int[np.ndarray, "N T+1"]) -> tuple[dict[int, Rows], Rows, Rows]:
    """Return rows of content-dependent biases, by layer, of attention distances and of rotated denominators.

    Each attention also computes its weights for this. A mixer that is no Attention has no matrix of weights,
    so it is left out.
    """
    count, length = len(windows), windows.shape[1] - 1
    half = length // 2  # distances and biases are summed over the queries from here on
    places = torch.arange(length)
    back = (places[:, None] - places).abs().double()  # tokens from query to key
    distances = spaced(length - half)
    # Sums over windows, by layer.
    attended: defaultdict[int, Any] = defaultdict(int)  # (H,)
    added: defaultdict[int, Any] = defaultdict(int)  # (distances, H)
    # Layers of linear attention under a rotation. It rotates the numerator of the weights and not the
    # denominator, so a query's weights sum to the rotated denominator over the plain one.
    rotated = {
        layer
        for layer, block in enumerate(gpt.blocks)
        if isinstance(block.attention, Linear) and _rotates(gpt.scheme.layer(layer))
    }
    denominators: defaultdict[int, Any] = defaultdict(int)  # (H, 3): vanished, weights, negative ones
    lowest: dict[int, Tensor] = {}  # (H,)

    def watch(layer: int, attention: Attention, inputs: Any, output: Tensor) -> None:
        q, k, _, site = attention.projected(*inputs)
        with torch.autocast(q.device.type, enabled=False):
            weights = attention.weights(q, k, site)
        # Weights below 0 (linear attention under a rotation) count with their absolute value.
        size = weights[0, :, half:].abs().double().cpu()
        attended[layer] += ((size * back[half:]).sum(dim=-1) / size.sum(dim=-1)).sum(dim=-1)
        if site.log_gates is not None:
            sums = cumulative_log_gates(site.log_gates)[0].cpu()
            gates = [(sums[:, half:] - sums[:, half - t : length - t]).mean(dim=-1) for t in distances]
            added[layer] += torch.stack(gates)
        if site.content_bias is not None:
            profiles = site.content_bias.profiles(half, length)[0].mean(dim=-2).double().cpu()
            added[layer] += profiles[:, torch.tensor(distances).clamp(max=profiles.shape[1] - 1)].T
        if layer in rotated:
            wide = weights[0].double().cpu()
            sums = wide.sum(dim=-1)
            counts = (sums <= 0).sum(dim=-1), (wide != 0).sum(dim=(1, 2)), (wide < 0).sum(dim=(1, 2))
            denominators[layer] += torch.stack(counts, dim=1)
            lowest[layer] = torch.minimum(lowest.get(layer, sums[:, 0]), sums.amin(dim=-1))

    hooks = [
        block.attention.register_forward_hook(partial(watch, layer))
        for layer, block in enumerate(gpt.blocks)
        if isinstance(block.attention, Attention)
    ]
    device = next(gpt.parameters()).device
    with evaluating(gpt, hooks):
        for window in windows:
            gpt(torch.from_numpy(window[None, :-1]).to(device))
    by_content = {
        layer: [
            {"layer": layer, "head": head, "distance": distance, "bias": value}
            for distance, heads in zip(distances, (sums / count).tolist(), strict=True)
            for head, value in enumerate(heads)
        ]
        for layer, sums in added.items()
    }
    by_distance = [
        {"layer": layer, "head": head, "queries": count * (length - half), "distance": total}
        for layer, totals in attended.items()
        for head, total in enumerate(totals.tolist())
    ]
    of_sums = [
        {"layer": layer, "head": head, "queries": count * length}
        | {"vanished": vanished, "lowest": float(lowest[layer][head])}
        | {"weights": unmasked, "negative": negative}
        for layer, heads in denominators.items()
        for head, (vanished, unmasked, negative) in enumerate(heads.tolist())
    ]
    return by_content, by_distance, of_sums


def _rotates(layer: Scheme) -> bool:
    return layer.overrides("angles") or layer.relative_rotation(torch.tensor([1])) is not None
