"""Every arm of conf/, and small models built from them."""

import itertools
from collections.abc import Sequence
from typing import Any, TypeVar

import torch

from poslab.config.compose import arms, one_for_each_scheme
from poslab.config.schema import BlockOptions, ConfigError
from poslab.model.attention import Attention, build_attention, build_attentions
from poslab.model.gpt import GPT
from poslab.model.positions import Geometry, build_scheme
from poslab.model.positions.rope import RoPE
from support.commands import ROOT

CONF = ROOT / "conf"

# Every file of a group, so that a new scheme or attention is tested without being named here.
POSITIONS = arms(CONF / "pos")

ATTENTIONS = arms(CONF / "attention")

SCHEMES = one_for_each_scheme(POSITIONS)

Pair = TypeVar("Pair", bound=tuple[str, ...])


def budget(size: str) -> dict[str, Any]:
    """Return the trainer's settings of a size."""
    return {**arms(CONF)["config"]["trainer"], **arms(CONF / "trainer")[size]}


def make_gpt(
    pos: dict[str, Any],
    attention: dict[str, Any],
    *,
    width: int = 32,
    heads: int = 4,
    layers: int = 4,
    context_length: int = 64,
    vocabulary: int = 50,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    causal: bool = True,
    **block: Any,
) -> GPT:
    """Build a GPT with weights that make attention matter; `block` has options that differ from GPT-2's."""
    geometry = Geometry(width, heads, context_length, layers, causal=causal)
    scheme = build_scheme(pos, geometry)
    gpt = GPT(
        vocabulary,
        geometry,
        scheme,
        build_attentions(attention, geometry, [scheme.layer(index) for index in range(layers)]),
        BlockOptions(**block),
    )
    gpt.initialise(seed)
    with torch.no_grad():
        # GPT-2's small weights make all attention nearly uniform; these make it matter.
        for parameter in gpt.parameters():
            if parameter.ndim >= 2:
                parameter.mul_(8)
    return gpt.to(dtype)


def pairs_that_work(geometry: Geometry) -> list[tuple[str, str]]:
    """Return one arm of each scheme with every attention; impossible pairs raise when they are built.

    Mixers that are not an Attention are tested in test_mixers.py.
    """
    found = []
    for pos, attention in itertools.product(SCHEMES, ATTENTIONS):
        try:
            scheme = build_scheme(SCHEMES[pos], geometry).layer(0)
            built = build_attention(ATTENTIONS[attention], geometry, scheme)
        except ConfigError:
            continue
        if isinstance(built, Attention):
            found.append((pos, attention))
    return found


def each_scheme_once(pairs: Sequence[Pair]) -> list[Pair]:
    """Return one of the pairs of each scheme, with all attentions in turn."""
    groups = [list(group) for _, group in itertools.groupby(pairs, key=lambda pair: pair[0])]
    return [group[turn % len(group)] for turn, group in enumerate(groups)]


def ropes_once(pairs: Sequence[Pair]) -> list[Pair]:
    """Reduce variants of RoPE to one pair each, in turn: attentions have the same code for all of them."""
    geometry = Geometry(32, 4, 64, layers=4)
    layers = {pos: build_scheme(SCHEMES[pos], geometry).layer(0) for pos, *_ in pairs if pos != "rope"}
    kinds = {pos for pos, layer in layers.items() if isinstance(layer, RoPE) and layer.geometry == geometry}
    once = each_scheme_once(pairs)
    return [pair for pair in pairs if pair[0] not in kinds or pair in once]


PAIRS = pairs_that_work(Geometry(32, 4, 64, layers=4))

BY_TURNS = each_scheme_once(PAIRS)
