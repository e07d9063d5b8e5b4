"""RoFormer's bound on a score by distance (its Figure 2), and why it falls."""

from itertools import pairwise

import torch

from claims import parts
from claims.contract import (
    BLOG,
    ROFORMER,
    Claim,
    Figure,
    Judgement,
    Line,
    Part,
    control,
    exactly,
    in_parts,
)
from claims.studies import BASES, Studies

WIDTHS, BASES_TRIED = (32, 64, 128, 512), (500.0, 10_000.0, 500_000.0)
FARTHEST = 256  # tokens, as in the paper's figure


def bound(width: int, base: float, farthest: int = FARTHEST) -> list[float]:
    """Return the bound at each distance up to `farthest`, over its value at distance 0.

    It is the mean over pairs of |S_j|, S_j the sum of the first j rotations (Su et al. 2021, section 3.4.3).
    """
    turns = parts.rotations(parts.rope(width, base), torch.arange(farthest + 1))
    sums = turns.cumsum(dim=0).abs().mean(dim=0)
    bounds: list[float] = (sums / sums[0]).tolist()
    return bounds


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _decays(studies: Studies) -> Judgement:
    bounds = {(width, base): bound(width, base) for width in WIDTHS for base in BASES_TRIED}
    control(all(abs(values[0] - 1) < 1e-12 for values in bounds.values()), "a bound of 1 at distance 0")
    ends = {key: (_mean(values[:64]), _mean(values[192:])) for key, values in bounds.items()}
    rises = [_mean([float(b > a) for a, b in pairwise(values)]) for values in bounds.values()]
    falls = all(far < near for near, far in ends.values())
    near, far = ends[128, 10_000.0]
    lines = tuple(
        Line(f"K = {width}, base {base:,.0f}", tuple(range(FARTHEST + 1)), tuple(bounds[width, base]))
        for width, base in ((128, 500.0), (128, 10_000.0), (128, 500_000.0), (32, 10_000.0), (32, 500.0))
    )
    return in_parts(
        Part(
            "The bound decays with the distance.",
            exactly(falls),
            f"K = 128, base 10,000: mean {near:.2f} up to 63 tokens, {far:.2f} at 192 to 256",
        ),
        Part(
            "It oscillates.",
            exactly(min(rises) > 0),
            f"in 12 settings it rises at {100 * min(rises):.0f} to {100 * max(rises):.0f} % of the steps",
        ),
        why="Yes, as a trend, for all twelve pairs of width and base: it falls and oscillates. In narrow "
        f"heads it also rises again (K = 32, base 500: {bounds[32, 500.0][256]:.2f} at 256). It bounds the "
        "score, which need not follow it: claim 12."
        if falls
        else "The bound does not fall for every width and base.",
        figures=(Figure("rotation_bound", "RoFormer's bound on a score, over its value at distance 0",
                        "Distance, tokens", "Bound", lines),),
    )  # fmt: skip


def _spread(studies: Studies) -> Judgement:
    constant, spread = bound(128, 1.0), bound(128, 10_000.0)
    control(abs(spread[0] - 1) < 1e-12, "a bound of 1 at distance 0")
    still = max(constant) - min(constant) < 1e-9
    ends = {base: _mean(bound(128, base)[192:]) for base in (500.0, 500_000.0)}
    far = _mean(spread[192:])
    return in_parts(
        Part(
            "One constant theta gives no decay.",
            exactly(still),
            f"mean bound at 192 to 256 tokens, K = 128: {_mean(constant[192:]):.2f}",
        ),
        Part(
            "A base of 10,000 and its spread of frequencies give it.",
            exactly(far < 0.5),
            f"mean bound there: base 500 {ends[500.0]:.2f}, 10,000 {far:.2f}, 500,000 {ends[500_000.0]:.2f}",
        ),
        why="It holds for the bound: the spread of frequencies causes the decay, and with one frequency for "
        "all pairs the bound is constant. 10,000 is not special: it falls faster with a smaller base.",
        missing=() if studies.results(BASES.study) else (BASES,),
    )


CLAIMS = (
    Claim(
        11,
        "Figure 2 of RoFormer: the bound on a score decays with the distance and oscillates.",
        (BLOG, ROFORMER),
        "Its mean from 192 to 256 tokens is below that up to 63 tokens, and it rises at some steps.",
        "The bound as in the reports of trained runs, for four widths and three bases.",
        "Nothing for the bound; for scores see claims 3 and 12.",
        _decays,
        question="Does RoFormer's bound on a score decay with the distance?",
        exact=True,
    ),
    Claim(
        13,
        "The base of 10,000 and the spread of frequencies give the decay; one constant theta gives none.",
        (BLOG,),
        "With one frequency for all pairs the bound is 1 at every distance; with base 10,000 it falls below "
        "0.5.",
        "The bound with base 1, with which all pairs turn alike, and with bases 500, 10,000 and 500,000.",
        "The effect of the base on trained models: the study bases.",
        _spread,
        exact=True,
    ),
)
