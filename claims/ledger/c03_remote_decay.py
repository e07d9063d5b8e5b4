"""Whether a score falls with the distance of tokens: for random, equal and chosen queries and keys."""

import torch

from claims import parts
from claims.contract import (
    BLOG,
    LECTURE,
    Claim,
    Figure,
    Judgement,
    Line,
    Part,
    Verdict,
    control,
    exactly,
    in_parts,
)
from claims.ledger.c01_three_cosines import toy
from claims.studies import EXPLORATORY, EXTRAPOLATION, Studies, setting
from poslab import estimate, interval

FARTHEST = 4096
PAIRS = 4000  # random queries and keys


def equal(farthest: int = FARTHEST) -> torch.Tensor:
    """Return the score of a query and an equal key, with all pairs alike, by distance; 1 at distance 0."""
    scores: torch.Tensor = parts.rotations(parts.rope(), torch.arange(farthest + 1)).real.mean(dim=0)
    return scores


def _random(distances: tuple[int, ...]) -> list[float]:
    """Return the mean absolute score of Gaussian queries and keys at each distance, over that at 0."""
    rope = parts.rope()
    q, k = parts.normal(2, PAIRS, 1, 1, parts.WIDTH)
    turned = [rope.rotate_queries(q, torch.tensor([t])) for t in distances]
    k = rope.rotate_keys(k, torch.tensor([0]))
    sizes = [float((query * k).sum(dim=-1).abs().mean()) for query in turned]
    return [size / sizes[0] for size in sizes]


def _falls(studies: Studies) -> Judgement:
    scores = equal()
    control(
        abs(float(scores[0]) - 1) < 1e-12 and float(scores.max() - scores.min()) > 0.1,
        "a score of 1 at distance 0 and other scores elsewhere",
    )
    rises = float((scores[1:257] > scores[:256]).double().mean())
    near, far = float(scores[:64].mean()), float(scores[192:256].mean())
    two, twenty = toy(2, 20)
    sizes = _random((0, 1, 16, 256, 2048))
    always = rises == 0 and twenty <= two and sizes == sorted(sizes, reverse=True)
    distances = tuple(range(513))
    lines = (Line("equal q and k, K = 64, base 10,000", distances, tuple(scores[:513].tolist())),)
    return in_parts(
        Part(
            "As a law, for any query and key.",
            exactly(always),
            f"equal q, k: the score rises at {100 * rises:.0f} % of the steps to 256; random q, k: its size "
            f"at 256 is {sizes[3]:.2f} of that at 0; the sum of three cosines: {two:.2f} at 2, {twenty:.2f} "
            "at 20",
        ),
        Part(
            "As a trend, for a query and a key that are equal.",
            exactly(far < near),
            f"mean {near:.2f} up to 63 tokens, {far:.2f} at 192 to 255",
        ),
        Part("As a tendency of trained queries and keys.", Verdict.NOT_TESTED, "not measured"),
        why="It is no law: with random queries and keys the score does not fall at all, and with equal ones "
        "it rises at nearly every second step. The trend of equal ones does fall. Judging trained queries "
        "and keys takes their scores by distance, which are not on record; claim 12 is about where trained "
        "heads attend.",
        figures=(Figure("score_by_distance", "The score of equal queries and keys under RoPE",
                        "Distance, tokens", "Score, 1 at distance 0", lines),),
    )  # fmt: skip


def _near_heads(studies: Studies) -> tuple[Part, str, str | None]:
    """Return whether trained heads under RoPE attend nearer than evenly, a sentence and the setting."""
    statement = "As a tendency of trained models: distant tokens get less attention."
    results = studies.results(EXTRAPOLATION.study)
    rows = [] if results is None else results.rows("attention_distance_runs", arm="rope")
    heads: dict[str, list[float]] = {}
    for row in rows:
        heads.setdefault(row["run"], []).append(row["mean_distance"])
    finished = 0 if results is None or not rows else int(results.arms["rope"]["seeds_finished"])
    if results is None or len(heads) < max(EXPLORATORY, finished):
        return Part(statement, Verdict.NOT_TESTED, "not measured"), "Trained models were not inspected.", None
    even = results.rows("attention_distance_arms", arm="rope")[0]["uniform_distance"]
    mean = estimate([sum(distances) / len(distances) for distances in heads.values()])
    farthest = max(max(distances) for distances in heads.values())
    per_run = len(rows) // len(heads)
    assert mean is not None
    assert mean.half_width is not None
    verdict = Verdict.UNDECIDED
    if mean.mean + mean.half_width < even and farthest < even:
        verdict = Verdict.HOLDS_HERE
    elif mean.mean - mean.half_width > even:
        verdict = Verdict.REFUTED_HERE
    numbers = (
        f"mean distance of attention {interval(mean.mean, mean.half_width, 3)} tokens, {farthest:.1f} in the "
        f"farthest of {per_run} heads over all seeds; spread evenly it would be {even:.1f}"
    )
    why = (
        f"Yet in the trained models all {per_run} heads attend nearer than evenly spread attention would. "
        "That is about attention, not scores by distance, and it does not show that RoPE is the cause."
        if verdict is Verdict.HOLDS_HERE
        else "The trained models do not show such a tendency in every head."
    )
    return Part(statement, verdict, numbers), why, setting(results)


def _lower_score(studies: Studies) -> Judgement:
    rope, ones = parts.rope(), torch.ones(parts.WIDTH, dtype=torch.float64)
    key = rope.rotate(ones.expand(1, 1, 1, -1), torch.tensor([100]))[0, 0, 0]
    scores = [parts.score(rope, ones, key, at, 0) / parts.WIDTH for at in (0, 1, 10, 100, 200)]
    highest = scores.index(max(scores)) == 3 and scores[3] > scores[1] + 0.1
    trained, seen, where = _near_heads(studies)
    return in_parts(
        Part(
            "As a law, for any query and key.",
            exactly(not highest),
            f"one query and key score {scores[1]:.2f} side by side and {scores[3]:.2f} at 100 tokens",
        ),
        trained,
        why="It is no law: a bound on scores falls, but the score itself depends on the query and the key, "
        f"and some match best 100 tokens apart. {seen}"
        if highest
        else "The score of every tested query and key is highest at the shortest distance.",
        study=None if where is None else EXTRAPOLATION.study,
        setting=where,
        missing=() if studies.results(EXTRAPOLATION.study) else (EXTRAPOLATION,),
    )


def _rises_again(studies: Studies) -> Judgement:
    scores = equal()
    within = 16
    windows = scores[256:].unfold(0, within + 1, 1)
    jump = windows[:, -1] - windows[:, 0]
    start = 256 + int(jump.argmax())
    rise = float(jump.max())
    return in_parts(
        Part(
            "The score of equal queries and keys rises again.",
            exactly(rise > 0.1),
            f"from {float(scores[start]):.2f} at {start:,} tokens to {float(scores[start + within]):.2f} at "
            f"{start + within:,}",
        ),
        Part("Attention in trained models rises with it.", Verdict.NOT_TESTED, "not measured"),
        why="The score of equal queries and keys does: the sum of cosines rises again wherever many pairs "
        "complete a turn together. Whether attention in a trained model rises with it depends on its queries "
        "and keys; testing it takes models that attend beyond 256 tokens."
        if rise > 0.1
        else "From 256 to 4,096 tokens the score never rises by a tenth within 16 tokens.",
    )


CLAIMS = (
    Claim(
        3,
        "The farther apart two tokens are, the lower their score under RoPE (\"remote decay\").",
        (LECTURE,),
        "From distance 0 to 256 the score never rises, for any query and key (a law), or its mean "
        "is lower at 192 to 255 tokens than up to 63 (a trend).",
        "Scores by distance of equal and of 4,000 random queries and keys (K = 64, base 10,000), and the sum "
        "of three cosines of claim 1.",
        "The scores by distance of trained queries and keys, compared with those of other schemes.",
        _falls,
        exact=True,
    ),
    Claim(
        12,
        "So tokens that are further away get lower scores, as language wants it.",
        (LECTURE, BLOG),
        "No query and key score higher at a long distance than side by side (a law), or all trained heads "
        "attend nearer than evenly (a tendency).",
        "Softmax attention's scores of a query and a key that match best 100 tokens apart, and the mean "
        "distance of attention of each trained head of rope in the study extrapolation.",
        "The scores by distance of trained queries and keys, over several texts.",
        _lower_score,
        question="Do distant tokens get lower scores under RoPE?",
        exact=True,
    ),
    Claim(
        14,
        "At some far distances attention suddenly rises again.",
        (BLOG,),
        "Beyond 256 tokens the score of equal queries and keys rises by more than 0.1 of its maximum within "
        "16 tokens.",
        "The score of equal queries and keys (K = 64, base 10,000) at every distance up to 4,096.",
        "Attention weights of trained models at these distances.",
        _rises_again,
        exact=True,
    ),
)  # fmt: skip
