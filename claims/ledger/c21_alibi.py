"""ALiBi's bias, whether ALiBi extrapolates, and the share of the early-token curse in that."""

import torch

from claims import parts
from claims.contract import (
    BOOK,
    Claim,
    Figure,
    Judgement,
    Line,
    Part,
    Verdict,
    control,
    exactly,
    in_parts,
    untested,
)
from claims.formatting import small
from claims.studies import (
    EXPLORATORY,
    EXTRAPOLATION,
    Studies,
    above_zero,
    compared,
    context_used,
    gain_reading,
    multiple,
    name,
    read_difference,
    setting,
    uses_context,
)
from poslab import interval, paired

HEADS = 8
ALIBI = "Press et al. 2022, ALiBi (arXiv 2108.12409)"
FLAT = 0.05  # largest rise of the loss, over that at L, with which a scheme still extrapolates


def _fixed_and_linear(studies: Studies) -> Judgement:
    alibi = parts.scheme("alibi", 16, heads=HEADS)
    distance = torch.arange(129)
    bias = alibi.bias(distance)
    assert bias is not None
    slopes = -(bias[:, 1] - bias[:, 0])
    published = torch.tensor([2.0 ** -(head + 1) for head in range(HEADS)], dtype=torch.float64)
    control(bool(torch.allclose(slopes, published)), "the published slopes, 1/2 to 1/256")
    learned = any(parameter.requires_grad for parameter in alibi.parameters())
    bend = float((bias[:, 2:] - 2 * bias[:, 1:-1] + bias[:, :-2]).abs().max())
    biases = tuple(
        Line(f"ALiBi, head {head}", tuple(range(129)), tuple(bias[head].tolist())) for head in (0, 2, 4, 7)
    )
    return in_parts(
        Part(
            "Its slope is learned.",
            exactly(learned),
            f"parameters: {sum(weight.numel() for weight in alibi.parameters())}; slopes 1/2 to 1/256 over "
            f"{HEADS} heads",
        ),
        Part("Its bias decays exponentially.", exactly(bend > 1e-9), f"its curvature is {small(bend)}"),
        why="The slopes are fixed before training, and the bias falls linearly. Exponential are exp(bias), "
        "the factor on a weight, and the fall of the slopes from head to head.",
        figures=(
            Figure("alibi_slopes", f"ALiBi's bias, {HEADS} heads", "Distance, tokens", "Bias, nats", biases),
        ),
    )  # fmt: skip


def _extrapolates(studies: Studies) -> Judgement:
    results = studies.results(EXTRAPOLATION.study)
    if results is None or "alibi" not in results.arms or results.primary is None:
        return untested((EXTRAPOLATION,), "The study was not run, or has no such arm.")
    longest = name(multiple(results.primary))
    near, far = (results.estimate("alibi", figure) for figure in ("sliding_1x", f"sliding_{longest}"))
    local = {arm: compared(results, "sliding_1x", "alibi", arm, 2) for arm in ("rope", "t5")}
    if near is None or far is None:
        return untested((EXTRAPOLATION,), "The study has no sliding losses.")
    change = paired(results.by_seed("alibi", f"sliding_{longest}"), results.by_seed("alibi", "sliding_1x"))
    high = None if change is None or change.half_width is None else change.mean + change.half_width
    flat = high is not None and far.n >= EXPLORATORY and high < FLAT * near.mean
    k = f"{multiple(results.primary):g}"
    blind = flat and not uses_context(results, "alibi")
    listed = "; ".join(f"less {arm}'s {loss.text}" for arm, loss in local.items() if loss is not None)
    worse = [arm for arm, loss in local.items() if loss is not None and loss.reading == "higher"]
    return in_parts(
        Part(
            f"It extrapolates: its loss at {k} L stays near that at L.",
            Verdict.HOLDS_HERE if flat and not blind else Verdict.UNDECIDED,
            f"sliding loss {interval(near.mean, near.half_width)} at L and "
            f"{interval(far.mean, far.half_width)} at {k} L",
        ),
        Part("Its linear decay limits local modelling.", Verdict.UNDECIDED, f"sliding loss at L {listed}"),
        why=f"Its loss is {'' if flat else 'not '}shown to rise by less than {100 * FLAT:.0f} % past L. "
        + context_used(results, "alibi", "its")
        + (" So this does not show that it extrapolates." if blind else "")
        + (
            f" At L its loss is higher than that of {' and '.join(worse)}, which is consistent with the "
            "second part but does not show that the decay is the cause: that takes losses by the distance of "
            "the token that is needed."
            if worse
            else " At L its loss is not shown to be higher than that of others."
        ),
        study=EXTRAPOLATION.study,
        setting=setting(results),
    )


def _curse(studies: Studies) -> Judgement:
    results = studies.results(EXTRAPOLATION.study)
    if results is None or "alibi" not in results.arms or results.primary is None:
        return untested((EXTRAPOLATION,), "The study was not run, or has no such arm.")
    k = multiple(results.primary)
    longest = name(k)
    near, far, gain = (
        results.by_seed("alibi", figure)
        for figure in ("early_token_curse_1x", f"early_token_curse_{longest}", f"context_gain_{longest}")
    )
    seeds = sorted(near.keys() & far.keys() & gain.keys())
    lifted = {seed: near[seed] - far[seed] for seed in seeds}
    curse = above_zero(lifted)
    more = paired(lifted, gain)  # above 0 if the fall of the curse is larger than the gain
    tested = gain_reading(results, f"context_gain_{longest}", "alibi")
    if curse is None or more is None or tested is None or more.half_width is None or curse.half_width is None:
        return untested((EXTRAPOLATION,), "The study has too few finished runs.")
    sides = [
        read_difference(test, None if test.p is None else min(1.0, 2 * test.p)) for test in (curse, more)
    ]
    mostly, against = sides == ["higher", "higher"], sides[1] == "lower"
    verdict = Verdict.HOLDS_HERE if mostly else Verdict.REFUTED_HERE if against else Verdict.UNDECIDED
    blind = not uses_context(results, "alibi")
    return in_parts(
        Part(
            f"The early-token curse falls from L to {k:g} L.",
            Verdict.HOLDS_HERE if sides[0] == "higher" else Verdict.UNDECIDED,
            f"it falls by {interval(curse.mean, curse.half_width, 3)} nats",
        ),
        Part(
            "That is most of the gain.",
            Verdict.UNDECIDED if blind else verdict,
            "the gain of longer context in sliding windows is "
            f"{interval(tested.difference.mean, tested.difference.half_width, 3, sign=True)} nats",
        ),
        why=context_used(results, "alibi", "ALiBi's")
        + (
            " A model that does not use a longer context can gain only by the fall of the curse, so the "
            "second part could not fail here."
            if blind
            else ""
        ),
        study=EXTRAPOLATION.study,
        setting=setting(results),
    )


CLAIMS = (
    Claim(
        21,
        "ALiBi's slope is learned, and its bias decays exponentially.",
        (BOOK,),
        "The scheme has parameters, and its bias is not a straight line.",
        "The bias that is added to scores, its curvature (second differences) and its parameters.",
        f"Nothing: it follows from the definition ({ALIBI}).",
        _fixed_and_linear,
        exact=True,
    ),
    Claim(
        37,
        "ALiBi extrapolates; its linear decay limits local modelling.",
        (BOOK,),
        f"At 8 L its sliding loss is less than {100 * FLAT:.0f} % above that at L; at L it is higher than "
        "that of other schemes, and more so where near tokens are needed.",
        "Sliding losses of the study extrapolation, paired by seed, with its tests.",
        "Losses by the distance of the token that is needed; models whose loss rises by at least 0.02 nats "
        "with half of their context; another text.",
        _extrapolates,
        question="Does ALiBi extrapolate, and model near text worse?",
    ),
    Claim(
        43,
        "What ALiBi gains past its training length is mostly the early-token curse going away.",
        (f"{ALIBI}, in its analysis",),
        "From L to 8 L the early-token curse falls by more than the loss in sliding windows does.",
        "Early-token curse and context gain in the study extrapolation, on the same tokens, by seed.",
        "Models whose loss rises by at least 0.02 nats with half of their context, and another text.",
        _curse,
    ),
)  # fmt: skip
