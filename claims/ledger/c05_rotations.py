"""Properties of a rotation; scores under RoPE depend only on the distance."""

import math

import torch

from claims import parts
from claims.contract import (
    BOOK,
    DEMO,
    LECTURE,
    Claim,
    Judgement,
    Kind,
    Part,
    Verdict,
    exactly,
    in_parts,
)
from claims.formatting import small
from claims.studies import Studies


def _turned(vector: tuple[float, float], degrees: float) -> torch.Tensor:
    x = torch.tensor(vector, dtype=torch.float64).reshape(1, 1, 1, 2)
    radians = torch.tensor([math.radians(degrees)], dtype=torch.float64)
    return parts.rope(2).rotate(x, radians)[0, 0, 0]  # a single pair turns by one radian per token


def _matrix(studies: Studies) -> Judgement:
    matrix = torch.stack([_turned((1, 0), 60), _turned((0, 1), 60)], dim=1)
    determinant = float(torch.linalg.det(matrix))
    orthogonal = float((matrix.T @ matrix - torch.eye(2)).abs().max())
    turned = _turned((3, 1), 60)
    product = float(turned @ _turned((1, 2), 60))
    apart = float(_turned((1, 0), 30) @ _turned((0, 1), 60))
    first, second = turned.tolist()
    rotation = abs(determinant - 1) < 1e-12 and orthogonal < 1e-12
    return in_parts(
        Part(
            "A rotation has determinant 1 and R^T R = I.",
            exactly(rotation),
            f"determinant {determinant:.3f}, R^T R off by {small(orthogonal)}",
        ),
        Part(
            "60° turn (3, 1) into (0.634, 3.098).",
            exactly((round(first, 3), round(second, 3)) == (0.634, 3.098)),
            f"({first:.3f}, {second:.3f})".replace("-", "−"),
        ),
        Part(
            "The products are 5.0 and −0.5.",
            Verdict.NOT_TESTED,
            f"of (3, 1) and (1, 2) {product:.3f}, of two axes {apart:.3f}".replace("-", "−"),
        ),
        why="The second vectors of the two products are not on record, so nothing was compared with them: "
        "the products here use vectors chosen for this page.",
    )


def _distance_alone(studies: Studies) -> Judgement:
    scheme = parts.rope()
    q, k = parts.normal(2, parts.WIDTH)
    shifts = (0, 1, 1000, 100_000)
    scores = [parts.score(scheme, q, k, 37 + shift, shift) for shift in shifts]
    spread = max(scores) - min(scores)
    norm = scheme.rotate(q.expand(1, 1, 1, -1), torch.tensor([100_000])).norm() / q.norm()
    change = abs(parts.score(scheme, q, k, 38, 0) - scores[0])
    by_distance = spread < 1e-8 < 1e-3 < change
    return in_parts(
        Part(
            "Scores depend only on the distance.",
            exactly(by_distance),
            f"at a distance of 37 the score differs by {small(spread)} between positions 0 and 100,000; at "
            f"a distance of 38 it differs by {change:.2g}",
        ),
        Part(
            "Rotated vectors keep their norms.",
            exactly(abs(float(norm) - 1) < 1e-12),
            f"at position 100,000 the norm is off by {small(float(norm) - 1)}",
        ),
        why="Yes: up to rounding, the score of one query and one key is the same at all positions, and "
        "a rotated vector keeps its length. Phases are in float64 here; claim 22 has lower precisions."
        if by_distance
        else "The score changes when both tokens move by the same amount, or ignores the distance.",
    )


CLAIMS = (
    Claim(
        5,
        "A rotation has determinant 1 and R^T R = I; 60° turn (3, 1) into (0.634, 3.098) and keep a product "
        "of 5.0; two vectors turned by 30° and 60° have the product −0.5.",
        (DEMO,),
        "These five numbers, to three decimals.",
        "The function that turns queries and keys, applied to these vectors.",
        "The vectors of the notes.",
        _matrix,
        exact=True,
        kind=Kind.CHECK,
    ),
    Claim(
        6,
        "R_m^T R_n = R_(n−m): under RoPE a score depends only on the distance, and rotated vectors keep "
        "their norms.",
        (LECTURE, BOOK, DEMO),
        "One query and one key 37 tokens apart have the same score at positions 0, 1, 1,000 and 100,000.",
        "Softmax attention's scores under RoPE, K = 64, in float64.",
        "Nothing in exact arithmetic; lower precisions are claim 22.",
        _distance_alone,
        question="Do RoPE's scores depend only on the distance?",
        exact=True,
    ),
)
