"""Small schemes and attentions for exact checks, built as in training."""

import math

import torch
from jaxtyping import Complex, Float
from torch import Tensor

import poslab
from poslab import CausalAttention, Scheme

WIDTH = 64  # of a head (K), unless a claim names another


def scheme(name: str, width: int = WIDTH, heads: int = 1, length: int = 128, **options: object) -> Scheme:
    """Return the scheme `pos.scheme=name` with these options, for one layer of `heads` heads of `width`."""
    sizes = {"width": heads * width, "heads": heads, "layers": 1, "context_length": length}
    return poslab.scheme({"scheme": name, **options}, **sizes)


def rope(width: int = WIDTH, base: float = 10_000.0, pairing: str = "half") -> Scheme:
    return scheme("rope", width, base=base, pairing=pairing)


def attention(kind: str, of: Scheme) -> CausalAttention:
    return poslab.attention(kind, of)


def frequencies(of: Scheme) -> Float[Tensor, "C"]:
    """Return the radians per token by which each pair turns, in float64, in the order of the pairs."""
    rotation: Tensor = rotations(of, torch.tensor([1]))[:, 0].angle()
    return rotation


def rotations(of: Scheme, distance: Tensor) -> Complex[Tensor, "C N"]:
    """Return exp(i t theta_c) of a rotating scheme at each distance t."""
    turned = of.relative_rotation(distance)
    assert turned is not None
    return turned


def score(of: Scheme, q: Float[Tensor, "K"], k: Float[Tensor, "K"], at: int, key_at: int) -> float:
    """Return softmax's logit times sqrt(K) for a query at position `at` >= `key_at` and a key at `key_at`."""
    places = torch.tensor([key_at, at])
    logits = attention("softmax", of).scores(q.expand(1, 1, 2, -1), k.expand(1, 1, 2, -1), positions=places)
    return float(logits[0, 0, 1, 0]) * math.sqrt(len(q))


def normal(*shape: int, seed: int = 0, scale: float = 1.0) -> Float[Tensor, "..."]:
    """Return Gaussian numbers in float64, the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.empty(shape, dtype=torch.float64).normal_(generator=generator)
