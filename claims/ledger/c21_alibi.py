"""What ALiBi's bias is, whether it extrapolates, and what of that is the early-token curse."""

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
FLAT = 0.05  # how much of its loss at L a scheme may lose and is still said to extrapolate


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
        Part("Its bias decays exponentially.", exactly(bend > 1e-9), f"the bias bends by {small(bend)}"),
        why="The slopes are fixed before training, and the bias falls in a straight line. What falls "
        "exponentially is exp(bias), the factor on a weight; and the slopes fall exponentially from head to "
        "head.",
        figures=(
            Figure("alibi_slopes", f"ALiBi's bias, {HEADS} heads", "Distance, tokens", "Bias, nats", biases),
        ),
    )  # fmt: skip


def _extrapolates(studies: Studies) -> Judgement:
    results = studies.results(EXTRAPOLATION.study)
    if results is None or "alibi" not in results.arms or results.primary is None:
        return untested((EXTRAPOLATION,), "The study is not there.")
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
            f"It extrapolates: at {k} L it keeps its loss.",
            Verdict.HOLDS_HERE if flat and not blind else Verdict.UNDECIDED,
            f"sliding loss {interval(near.mean, near.half_width)} at L and "
            f"{interval(far.mean, far.half_width)} at {k} L",
        ),
        Part("Its linear decay limits local modelling.", Verdict.UNDECIDED, f"sliding loss at L {listed}"),
        why=("It keeps its loss past L. " if flat else "Past L it does not clearly keep its loss. ")
        + context_used(results, "alibi", "its")
        + (" So that it keeps its loss does not show that it extrapolates." if blind else "")
        + (
            f" At L its loss is higher than that of {' and '.join(worse)}, which fits the second part but "
            "does not show the decay to be the cause: that takes losses by how far back the needed token is."
            if worse
            else " At L its loss is not shown to be higher than others'."
        ),
        study=EXTRAPOLATION.study,
        setting=setting(results),
    )


def _curse(studies: Studies) -> Judgement:
    results = studies.results(EXTRAPOLATION.study)
    if results is None or "alibi" not in results.arms or results.primary is None:
        return untested((EXTRAPOLATION,), "The study is not there.")
    k = multiple(results.primary)
    longest = name(k)
    near, far, gain = (
        results.by_seed("alibi", figure)
        for figure in ("early_token_curse_1x", f"early_token_curse_{longest}", f"context_gain_{longest}")
    )
    seeds = sorted(near.keys() & far.keys() & gain.keys())
    lifted = {seed: near[seed] - far[seed] for seed in seeds}
    curse = above_zero(lifted)
    more = paired(lifted, gain)  # above 0 where the curse is more than half of the gain
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
            f"The early-token curse goes away from L to {k:g} L.",
            Verdict.HOLDS_HERE if sides[0] == "higher" else Verdict.UNDECIDED,
            f"it falls by {interval(curse.mean, curse.half_width, 3)} nats",
        ),
        Part(
            "That is most of what is gained.",
            Verdict.UNDECIDED if blind else verdict,
            "the gain of longer context in sliding windows is "
            f"{interval(tested.difference.mean, tested.difference.half_width, 3, sign=True)} nats",
        ),
        why=context_used(results, "alibi", "ALiBi's")
        + (
            " A model that cannot gain from a longer context gains only what the curse gives back, so the "
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
        "The bias that is added to scores, its second differences and its parameters.",
        f"Nothing: it follows from the definition ({ALIBI}).",
        _fixed_and_linear,
        exact=True,
    ),
    Claim(
        37,
        "ALiBi extrapolates; its linear decay limits local modelling.",
        (BOOK,),
        f"At 8 L its sliding loss is less than {100 * FLAT:.0f} % above that at L; at L it is higher than "
        "other schemes', and more so where near tokens are needed.",
        "Sliding losses of the study extrapolation, paired by seed, with its tests.",
        "Losses by the distance of the token that is needed; models that lose at least 0.02 nats with half "
        "of their context; another text.",
        _extrapolates,
        question="Does ALiBi extrapolate, and model near text worse?",
    ),
    Claim(
        43,
        "What ALiBi gains past its training length is mostly the early-token curse going away.",
        (f"{ALIBI}, in its analysis",),
        "From L to 8 L the early-token curse falls by more than the loss in sliding windows does.",
        "Early-token curse and context gain of the study extrapolation, both on the same tokens, by seed.",
        "Models that lose at least 0.02 nats with half of their context, and another text.",
        _curse,
    ),
)  # fmt: skip
