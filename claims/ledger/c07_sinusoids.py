"""The effect of added sinusoids on scores."""

import torch

from claims import parts
from claims.contract import BOOK, Claim, Judgement, Kind, control, exactly
from claims.formatting import small
from claims.studies import Studies
from poslab import Scheme

WIDTH = 64


def _sinusoidal() -> Scheme:
    return parts.scheme("sinusoidal", WIDTH, base=10_000.0, amplitude=1.0)


def _encoding(*positions: int) -> torch.Tensor:
    """Return the rows that the scheme adds at these positions."""
    zeros = torch.zeros(1, len(positions), WIDTH, dtype=torch.float64)
    rows: torch.Tensor = _sinusoidal().embed(zeros, torch.tensor(positions))[0]
    return rows


def _cross_terms(studies: Studies) -> Judgement:
    x, y = parts.normal(2, WIDTH)
    scores, positional, cross = [], [], []
    for shift in (0, 1, 10, 1000):
        query, key = _encoding(37 + shift, shift)
        scores.append(float((x + query) @ (y + key)))
        positional.append(float(query @ key))
        cross.append(float(x @ key + query @ y))
    control(
        abs(float(_encoding(0)[0] @ _encoding(0)[0]) - WIDTH / 2) < 1e-9,
        "the norm of an encoding, half its width",
    )
    moved, still, through = (max(values) - min(values) for values in (scores, positional, cross))
    holds = moved > 1e-3 and still < 1e-9 and abs(moved - through) < 1e-9
    return Judgement(
        exactly(holds),
        f"the score moves by {moved:.1f}, its cross terms by {through:.1f}, its positional term by "
        f"{small(still)}",
        "A score is the sum of four products. That of the two encodings depends only on the distance; "
        "the two cross terms, of a token with the other's encoding, do not, and the score changes by "
        "exactly as much as they do."
        if holds
        else "The score does not change when both tokens move by the same amount.",
    )  # fmt: skip


def _identity(studies: Studies) -> Judgement:
    worst = 0.0
    for a, b in ((2, 0), (10, 4), (101, 37), (1000, 2)):
        at_a, at_b, half_sum, half_difference = _encoding(a, b, (a + b) // 2, (a - b) // 2)
        left = at_a[1::2] - at_b[1::2]  # the cosines
        right = -2 * half_sum[0::2] * half_difference[0::2]  # the sines
        worst = max(worst, float((left - right).abs().max()))
    return Judgement(
        exactly(worst < 1e-9),
        f"both sides differ by {small(worst)} in 32 frequencies",
        "A trigonometric identity, which every column of the added table satisfies."
        if worst < 1e-9
        else "The columns of the table are not the sines and cosines of its frequencies.",
    )


CLAIMS = (
    Claim(
        7,
        "Adding sinusoids to the input breaks shift invariance, through cross terms of tokens and positions.",
        (BOOK,),
        "When both tokens move by 1,000 places, the score changes, and by exactly what its two cross terms "
        "change.",
        "The sinusoids that the scheme adds, with an amplitude of 1, to two random tokens of width 64.",
        "Nothing for the identity; its importance after trained projections can be measured only on "
        "checkpoints.",
        _cross_terms,
        exact=True,
    ),
    Claim(
        8,
        "cos a − cos b = −2 sin((a + b)/2) sin((a − b)/2).",
        (BOOK,),
        "Both sides are equal in every column of a table of sinusoids.",
        "The table of the sinusoidal scheme at four pairs of positions.",
        "Nothing: it is an identity.",
        _identity,
        exact=True,
        kind=Kind.CHECK,
    ),
)
