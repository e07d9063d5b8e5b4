"""Whether a transformer without positions can tell order."""

import torch

import poslab
from claims.contract import BOOK, LECTURE, Claim, Judgement, Part, control, exactly, in_parts
from claims.formatting import small
from claims.studies import Studies

TOKENS = 12


def _change(layers: int, causal: bool) -> float:
    """Return by how much the last token's logits change when the tokens before it are reversed.

    The unit is a standard deviation of the logits.
    """
    gpt = poslab.gpt(
        "none",
        "softmax",
        vocabulary=50,
        width=32,
        heads=2,
        layers=layers,
        context_length=TOKENS,
        causal=causal,
    ).double()
    with torch.no_grad():
        for parameter in gpt.parameters():
            if parameter.ndim > 1:
                parameter.mul_(8)  # with the small initial weights attention would be nearly uniform
        tokens = torch.arange(TOKENS)
        swapped = torch.cat([tokens[:-1].flip(0), tokens[-1:]])
        logits, swapped_logits = gpt(torch.stack([tokens, swapped]))[:, -1]
    return float((logits - swapped_logits).abs().max() / logits.std())


def _order(studies: Studies) -> Judgement:
    open_, single, causal = (_change(layers, causal) for layers, causal in ((2, False), (1, True), (2, True)))
    control(open_ < 1e-9, "two layers without a mask, which cannot tell order")
    return in_parts(
        Part("Without a mask.", exactly(open_ < 1e-9), f"logits change by {small(open_)} in two layers"),
        Part("With a causal mask and one layer.", exactly(single < 1e-9), f"by {small(single)}"),
        Part(
            "With a causal mask and two layers or more.",
            exactly(causal < 1e-9),
            f"by {small(causal)} standard deviations in two",
        ),
        why="No: with two layers or more the causal mask is enough to know the order, since each token is "
        "mixed only with those before it (Haviv et al. 2022, arXiv 2203.16634). Without a mask, and after "
        "one causal layer, the claim holds. How well a model learns with only the mask is a different "
        "question (the arm none)."
        if causal >= 1e-9
        else "Two causal layers give the same logits in either order.",
    )


CLAIMS = (
    Claim(
        25,
        "Without positions a transformer cannot see order.",
        (LECTURE, BOOK),
        "The logits after the last token stay the same when the tokens before it are reversed.",
        "An untrained GPT with one and with two layers, without positions, with its causal mask and without "
        "a mask.",
        "Trained models: losses of pos=none by position, on several texts.",
        _order,
        question="Is a GPT without positions blind to order?",
        asked="c",
        exact=True,
    ),
)
