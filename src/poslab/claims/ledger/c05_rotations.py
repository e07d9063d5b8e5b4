"""What a rotation is, and that scores under RoPE depend on the distance alone."""

import math

import torch

from poslab.claims import parts
from poslab.claims.contract import BOOK, DEMO, LECTURE, Claim, Judgement, exactly, small
from poslab.claims.studies import Studies
from poslab.model.positions import rope


def _turned(vector: tuple[float, float], degrees: float) -> torch.Tensor:
    x = torch.tensor(vector, dtype=torch.float64).reshape(1, 1, 1, 2)
    phase = torch.tensor([[math.radians(degrees)]], dtype=torch.float64)
    return rope.turn(x, phase, "half")[0, 0, 0]


def _matrix(studies: Studies) -> Judgement:
    matrix = torch.stack([_turned((1, 0), 60), _turned((0, 1), 60)], dim=1)
    determinant = float(torch.linalg.det(matrix))
    orthogonal = float((matrix.T @ matrix - torch.eye(2)).abs().max())
    turned = _turned((3, 1), 60)
    product = float(turned @ _turned((1, 2), 60))
    apart = float(_turned((1, 0), 30) @ _turned((0, 1), 60))
    first, second = turned.tolist()
    holds = (
        abs(determinant - 1) < 1e-12
        and orthogonal < 1e-12
        and (round(first, 3), round(second, 3)) == (0.634, 3.098)
        and abs(product - 5) < 1e-12
        and abs(apart + 0.5) < 1e-12
    )
    return Judgement(
        exactly(holds),
        f"determinant {determinant:.3f}; (3, 1) goes to ({first:.3f}, {second:.3f}); products "
        f"{product:.3f} and "
        f"{apart:.3f}".replace("-", "−"),
        "All of it. Where the note's second vector is not on record, (1, 2) was taken for the product of 5 "
        "and the two axes for that of −0.5."
        if holds
        else "The rotation of the code is another one.",
    )


def _distance_alone(studies: Studies) -> Judgement:
    scheme = parts.rope()
    q, k = parts.normal(2, parts.WIDTH)
    shifts = (0, 1, 1000, 100_000)
    scores = [parts.score(scheme, q, k, 37 + shift, shift) for shift in shifts]
    spread = max(scores) - min(scores)
    norm = scheme.rotate(q.expand(1, 1, 1, -1), torch.tensor([100_000])).norm() / q.norm()
    other = abs(parts.score(scheme, q, k, 38, 0) - scores[0])
    holds = spread < 1e-8 < 1e-3 < other and abs(float(norm) - 1) < 1e-12
    return Judgement(
        exactly(holds),
        f"at a distance of 37 the score differs by {small(spread)} between positions 0 and 100,000; at 38 it "
        f"is another one by {other:.2g}",
        "Yes: the score of one query and one key stays the same wherever the two stand, to rounding, and a "
        "rotated vector keeps its length. Phases are formed in float64 here; claim 22 has lower precisions."
        if holds
        else "The score changes when both tokens move by as much, or does not depend on the distance.",
    )


CLAIMS = (
    Claim(
        5,
        "A rotation has determinant 1 and R^T R = I; 60° turn (3, 1) into (0.634, 3.098) and keep a product "
        "of 5.0; two vectors turned by 30° and 60° have the product −0.5.",
        (DEMO,),
        "These five numbers, to three decimals.",
        "The function that turns queries and keys, on these vectors.",
        "The note's own vectors, where it does not print them.",
        _matrix,
        exact=True,
    ),
    Claim(
        6,
        "R_m^T R_n = R_(n−m): under RoPE a score depends on the distance alone, and rotated vectors keep "
        "their norms.",
        (LECTURE, BOOK, DEMO),
        "One query and one key 37 tokens apart have the same score at positions 0, 1, 1,000 and 100,000.",
        "Softmax attention's scores under RoPE, K = 64, in float64.",
        "Nothing in exact arithmetic; lower precisions are claim 22.",
        _distance_alone,
        question="Do RoPE's scores depend on the distance alone?",
        exact=True,
    ),
)
