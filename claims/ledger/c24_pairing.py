"""Whether pairing neighbours and pairing halves are one scheme."""

import torch

from claims import parts
from claims.contract import DEMO, LECTURE, Claim, Judgement, control, exactly
from claims.formatting import small
from claims.studies import Studies


def _one_scheme(studies: Studies) -> Judgement:
    q, k = parts.normal(2, parts.WIDTH)
    order = torch.arange(parts.WIDTH).reshape(2, -1).T.flatten()  # 0, K/2, 1, K/2 + 1, ...
    half, neighbours = parts.rope(), parts.rope(pairing="interleaved")
    places = ((5, 0), (37, 11), (1000, 3))
    scores = [parts.score(half, q, k, *place) for place in places]
    permuted = [parts.score(neighbours, q[order], k[order], *place) for place in places]
    plain = [parts.score(neighbours, q, k, *place) for place in places]
    control(max(scores) - min(scores) > 1e-3, "scores that depend on the distance")
    off = max(abs(a - b) for a, b in zip(scores, permuted, strict=True))
    apart = max(abs(a - b) for a, b in zip(scores, plain, strict=True))
    return Judgement(
        exactly(off < 1e-9),
        f"with the width permuted, scores differ by {small(off)}; without, by {apart:.1f}",
        "They are, up to a permutation of the width, which makes no difference to training. Weights trained "
        "with one pairing have to be permuted for the other."
        if off < 1e-9
        else "No permutation that pairs the same numbers gives the same scores.",
    )


CLAIMS = (
    Claim(
        24,
        "Pairing neighbours and pairing halves are one scheme.",
        (LECTURE, DEMO),
        "With the width of queries and keys permuted, all scores are equal.",
        "Softmax attention's scores under both pairings, K = 64.",
        "Nothing: it is exact.",
        _one_scheme,
        exact=True,
    ),
)
