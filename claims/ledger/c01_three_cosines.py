"""The sum of three cosines that a note uses as a score, and a note's tables of cosines."""

import math

import torch

from claims import parts
from claims.contract import (
    DEMO,
    LECTURE,
    Claim,
    Figure,
    Judgement,
    Kind,
    Line,
    Verdict,
    control,
    exactly,
)
from claims.studies import Studies

THETA = (1.0, 0.3, 0.05)  # radians per token


def toy(*distances: int) -> list[float]:
    """Return cos t + cos 0.3 t + cos 0.05 t at each distance t, by the rotation that is used in training."""
    places = torch.tensor(THETA).double()[:, None] * torch.tensor(distances)
    summed: list[float] = _cosines(places).sum(dim=0).tolist()
    return summed


def _cosines(radians: torch.Tensor) -> torch.Tensor:
    """Return the cosines by a RoPE with one pair, which turns by one radian per token."""
    turned = parts.rotations(parts.rope(2), radians.flatten()).real
    return turned.reshape(radians.shape)


def _values(studies: Studies) -> Judgement:
    at = toy(0, 2, 50)
    holds = [f"{value:.1f}" for value in at] == ["3.0", "1.4", "-0.6"]
    distances = tuple(range(101))
    line = Line("cos t + cos 0.3 t + cos 0.05 t", distances, tuple(toy(*distances)))
    return Judgement(
        exactly(holds),
        f"{at[0]:.3f} at 0, {at[1]:.3f} at 2, {at[2]:.3f} at 50".replace("-", "−"),
        "Rounded to one decimal, all three numbers agree with the notes."
        if holds
        else "The numbers differ from those of the notes.",
        (Figure("three_cosines", "The sum of three cosines", "Distance, tokens", "Sum", (line,)),),
    )


def _at_twenty(studies: Studies) -> Judgement:
    start, two, twenty = toy(0, 2, 20)
    control(abs(start - 3) < 1e-12 and abs(two - 1.4042) < 1e-4, "the sum's values at 0 and 2")
    return Judgement(
        exactly(f"{twenty:.1f}" == "1.4"),
        f"{twenty:.3f} at 20, {two:.3f} at 2",
        "At 20 tokens the sum is larger than at 2: the notes' example does not fall with the distance.",
    )


def _tables(studies: Studies) -> Judgement:
    places = (1, 2, 10, 100, 1000)
    theta = torch.tensor([1.0, 0.01], dtype=torch.float64)
    table = _cosines(theta[:, None] * torch.tensor(places)).tolist()
    exact = [[math.cos(theta * place) for place in places] for theta in (1.0, 0.01)]
    near = all(
        abs(a - b) < 1e-12
        for row, expected in zip(table, exact, strict=True)
        for a, b in zip(row, expected, strict=True)
    )
    control(near, "the cosines of 1, 2, 10, 100 and 1000")
    first = ", ".join(f"cos {place:,} = {value:.8f}" for place, value in zip(places, table[0], strict=True))
    second = ", ".join(f"{value:.8f}" for value in table[1][:4])
    return Judgement(
        Verdict.NOT_TESTED,  # and not undecided: there is nothing to compare with
        f"{first}; for a second frequency of 0.01 at 1, 2, 10, 100: {second}".replace("-", "−"),
        "These are the true digits; the rotation gives them to twelve decimals. The digits printed in the "
        "notes are not on record, so nothing was compared with them.",
    )


CLAIMS = (
    Claim(
        1,
        "cos t + cos 0.3 t + cos 0.05 t is 3.0 at t = 0, 1.4 at 2 and −0.6 at 50.",
        (LECTURE,),
        "The three sums, rounded to one decimal, are 3.0, 1.4 and −0.6.",
        "The sum of the real parts of RoPE's rotation for these three frequencies.",
        "Nothing: it is arithmetic.",
        _values,
        exact=True,
        kind=Kind.CHECK,
    ),
    Claim(
        2,
        "The same sum is 1.4 at t = 20, as it is at 2.",
        (LECTURE,),
        "The sum at 20, rounded to one decimal, is 1.4.",
        "As for claim 1, with the values at 0 and 2 as a control.",
        "Nothing: it is arithmetic.",
        _at_twenty,
        exact=True,
        kind=Kind.CHECK,
    ),
    Claim(
        4,
        "Two tables: the cosine at 1, 2, 10, 100 and 1,000, and two frequencies at distances from 1 to 100.",
        (DEMO,),
        "Every digit that the notes print is a digit of these cosines.",
        "RoPE's rotation, compared with the cosines of the C library.",
        "The digits as the notes print them.",
        _tables,
        exact=True,
        kind=Kind.CHECK,
    ),
)  # fmt: skip
