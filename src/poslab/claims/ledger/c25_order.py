"""Whether a transformer without positions can tell order."""

import torch
from jaxtyping import Float
from torch import Tensor

from poslab.claims.contract import BOOK, LECTURE, Claim, Judgement, Part, control, exactly, in_parts, small
from poslab.claims.studies import Studies
from poslab.model.attention import Attention, Site
from poslab.model.attention.softmax import Softmax
from poslab.model.gpt import GPT
from poslab.model.positions import Geometry, build_scheme

TOKENS = 12


class Unmasked(Softmax):
    """Softmax attention in which every token sees every other one."""

    def scores(
        self, q: Float[Tensor, "B H T K"], k: Float[Tensor, "B H T K"], site: Site, first: int = 0
    ) -> Float[Tensor, "B H Q T"]:
        logits: Tensor = q[..., first:, :] @ k.mT * q.shape[-1] ** -0.5
        return logits


def _change(layers: int, kind: type[Attention]) -> float:
    """By how much the last token's logits change when those before it swap places.

    In standard deviations of the logits.
    """
    geometry = Geometry(32, 2, TOKENS, layers)
    scheme = build_scheme({"scheme": "none"}, geometry)
    attentions = [kind(scheme.options, geometry, scheme) for _ in range(layers)]
    gpt = GPT(50, geometry, scheme, attentions)
    gpt.initialise(0)
    gpt.double()
    with torch.no_grad():
        for parameter in gpt.parameters():
            if parameter.ndim > 1:
                parameter.mul_(8)  # initial weights are so small that attention is nearly uniform
        tokens = torch.arange(TOKENS)
        swapped = torch.cat([tokens[:-1].flip(0), tokens[-1:]])
        logits, other = gpt(torch.stack([tokens, swapped]))[:, -1]
    return float((logits - other).abs().max() / logits.std())


def _order(studies: Studies) -> Judgement:
    open_, single, causal = _change(2, Unmasked), _change(1, Softmax), _change(2, Softmax)
    control(open_ < 1e-9, "two layers without a mask, which cannot tell order")
    return in_parts(
        Part("Without a mask.", exactly(open_ < 1e-9), f"logits change by {small(open_)} in two layers"),
        Part("With a causal mask, of one layer.", exactly(single < 1e-9), f"by {small(single)}"),
        Part(
            "With a causal mask, of two layers and more.",
            exactly(causal < 1e-9),
            f"by {small(causal)} standard deviations in two",
        ),
        why="No: from two layers on the causal mask alone tells order, since each token is mixed from those "
        "before it (Haviv et al. 2022, arXiv 2203.16634). Without a mask, and after one causal layer, the "
        "sentence holds. How well a model learns with the mask alone is another question (the arm none)."
        if causal >= 1e-9
        else "Two causal layers give the same logits in either order.",
    )


CLAIMS = (
    Claim(
        25,
        "Without positions a transformer cannot see order.",
        (LECTURE, BOOK),
        "The logits after the last token stay the same when the tokens before it swap places.",
        "An untrained GPT of one and of two layers without positions, with its causal mask and without a "
        "mask.",
        "What trained models make of it: losses of pos=none by position, on several texts.",
        _order,
        question="Is a GPT without positions blind to order?",
        asked="c",
        exact=True,
    ),
)
