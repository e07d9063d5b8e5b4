"""How exactly distant positions are told apart, by precision and by number of frequencies."""

import math
from decimal import Decimal, localcontext
from functools import cache

import torch

from claims import parts
from claims.contract import (
    BOOK,
    DEMO,
    Claim,
    Figure,
    Judgement,
    Line,
    Part,
    control,
    exactly,
    in_parts,
)
from claims.formatting import small
from claims.studies import Studies

HEAD = 64
DIGITS = 40
FULL_TURN = Decimal("6.283185307179586476925286766559005768394338798750")
FLOOR = 1e-9  # of the figure: smaller errors differ between machines
SAMPLES = 64  # neighbouring positions over which the largest error is taken
LOST = 1e-3  # with a larger error of its cosine a position counts as lost
BFLOAT16 = 2.0**-8  # the step of numbers next to 1
FARTHEST = 131_072  # 128 K
CHUNK = 16_384


@cache
def _exact(start: int) -> torch.Tensor:
    """Return each pair's cosine at SAMPLES positions from `start`, from phases with 40 decimal digits."""
    with localcontext() as context:
        context.prec = DIGITS
        theta = [Decimal(10_000) ** (Decimal(-2 * pair) / HEAD) for pair in range(HEAD // 2)]
        rows = [
            [math.cos(float(position * frequency % FULL_TURN)) for frequency in theta]
            for position in range(start, start + SAMPLES)
        ]
    return torch.tensor(rows, dtype=torch.float64)


def _worst(cosines: torch.Tensor, start: int) -> float:
    """Return the largest error of the cosines."""
    return float((cosines.double() - _exact(start)).abs().max())


def errors(start: int) -> dict[str, float]:
    """Return the largest error of a cosine near `start` with the code's phases and with coarser ones."""
    positions = torch.arange(start, start + SAMPLES)
    scheme = parts.rope(HEAD)
    ones = torch.zeros(1, 1, SAMPLES, HEAD, dtype=torch.float64)
    ones[..., : HEAD // 2] = 1  # a turned pair (1, 0) has the cosine as its first number
    turned = scheme.rotate(ones, positions)[0, 0, :, : HEAD // 2]
    theta = parts.frequencies(scheme)
    coarse = {
        label: _worst((positions.to(dtype)[:, None] * theta.to(dtype)).double().cos(), start)
        for label, dtype in (("float32 phases", torch.float32), ("bfloat16 phases", torch.bfloat16))
    }
    return {"as trained here (float64 phases)": _worst(turned, start), **coarse}


def _by_dtype(studies: Studies) -> Judgement:
    starts = tuple(2**k for k in range(4, 21))
    by_start = [errors(start) for start in starts]
    double, single, half = errors(100_000).values()
    control(next(iter(by_start[0].values())) < 1e-4, "cosines of the first positions")
    lines = tuple(
        Line(label, starts, tuple(max(worst[label], FLOOR) for worst in by_start)) for label in by_start[0]
    )
    worst_at = dict(zip(starts, by_start, strict=True))
    first = next(start for start, worst in worst_at.items() if worst["float32 phases"] > LOST)
    lost = next(start for start, worst in worst_at.items() if worst["bfloat16 phases"] > 0.1)
    return in_parts(
        Part("In float64.", exactly(double > LOST), f"a cosine at 100,000 tokens is off by {small(double)}"),
        Part("In float32.", exactly(single > LOST), f"by {small(single)}"),
        Part("In bfloat16.", exactly(half > LOST), f"by {half:.1f}"),
        why="It depends on the precision. Phases in float64, which the models here use, lose nothing. Phases "
        f"in bfloat16 are off by 0.1 within {lost + SAMPLES} tokens and meaningless at 100,000. In float32 "
        f"the error is small but present: more than {LOST} from about {first:,} tokens on."
        if double <= LOST
        else "The phases of the code lose distant positions.",
        figures=(Figure("phase_precision", "The largest error of a cosine by position", "Position, tokens",
                        "Error (1e−9: that or less)", lines, log_x=True, log_y=True),),
    )  # fmt: skip


def _nearest() -> tuple[float, float]:
    """Return how near two different positions of 128 K come, in the fastest pair and in all pairs together.

    The distance is that of the rotations as complex numbers of size 1: the root mean square over pairs.
    """
    scheme = parts.rope(HEAD)
    fastest, together = math.inf, math.inf
    for start in range(1, FARTHEST, CHUNK):
        turned = parts.rotations(scheme, torch.arange(start, min(start + CHUNK, FARTHEST)))
        apart = (turned.real - 1).square() + turned.imag.square()
        fastest = min(fastest, float(apart[0].min()))
        together = min(together, float(apart.mean(dim=0).min()))
    return math.sqrt(fastest), math.sqrt(together)


def _many(studies: Studies) -> Judgement:
    fastest, together = _nearest()
    nearest = f"of all pairs of positions up to {FARTHEST:,}, the nearest are"
    return in_parts(
        Part(
            "One frequency cannot tell 128 K positions apart.",
            exactly(fastest < BFLOAT16),
            f"{nearest} {small(fastest)} apart",
        ),
        Part(
            "Many together can.",
            exactly(together > BFLOAT16),
            f"{nearest} {together:.2f} apart in {HEAD // 2}",
        ),
        why="One frequency returns to nearly the same phase, closer than bfloat16 can distinguish (0.004); "
        "all together never do."
        if fastest < BFLOAT16 < together
        else "Many frequencies together come as near as one does.",
    )


CLAIMS = (
    Claim(
        22,
        "Past 100,000 tokens phases exceed floating-point precision.",
        (BOOK,),
        f"At position 100,000 the cosine that turns a query is off by more than {LOST}.",
        "Rotated vectors compared with cosines of phases with 40 decimal digits, by position; the same with "
        "phases in float32 and bfloat16.",
        "Losses of long-context models by the precision of their phases.",
        _by_dtype,
        exact=True,
    ),
    Claim(
        23,
        "One frequency cannot tell 128 K positions apart; many together can.",
        (DEMO,),
        "Two positions come nearer than a step of bfloat16 in one frequency, and no two do in 32.",
        "The rotation at every distance below 131,072 in the fastest pair and in all pairs, K = 64, base "
        "10,000.",
        "Nothing for the phases; whether models use them has to be tested at such training lengths.",
        _many,
        exact=True,
    ),
)  # fmt: skip
