"""What ALiBi's bias is, whether it extrapolates, and what of that is the early-token curse."""

import torch

from poslab.analysis.statistics import EXPLORATORY, paired
from poslab.claims import parts
from poslab.claims.contract import (
    BOOK,
    Claim,
    Figure,
    Judgement,
    Line,
    Verdict,
    control,
    exactly,
    small,
    undecided,
)
from poslab.claims.studies import (
    EXTRAPOLATION,
    Studies,
    arm,
    compared,
    gain_reading,
    read_difference,
    setting,
)
from poslab.record.measures import multiple, name
from poslab.report.formatting import interval

HEADS = 8
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
    return Judgement(
        exactly(learned and bend > 1e-9),
        f"parameters: {sum(one.numel() for one in alibi.parameters())}; slopes 1/2 to 1/256 over {HEADS} "
        f"heads; the bias bends by {small(bend)}",
        "The slopes are fixed before training, and the bias falls in a straight line. What falls "
        "exponentially is exp(bias), the factor on a weight; and the slopes fall exponentially from head to "
        "head.",
        (
            Figure("alibi_slopes", f"ALiBi's bias, {HEADS} heads", "Distance, tokens", "Bias, nats", biases),
        ),
    )  # fmt: skip


def _extrapolates(studies: Studies) -> Judgement:
    results = studies.results(EXTRAPOLATION.study)
    figures = None if results is None else arm(results, "alibi")
    if results is None or figures is None or results.primary is None:
        return undecided((EXTRAPOLATION,), "The study is not there.")
    longest = name(multiple(results.primary))
    near, far = figures.figures.get("sliding_1x"), figures.figures.get(f"sliding_{longest}")
    local = {other: compared(results, "sliding_1x", "alibi", other, 2) for other in ("rope", "t5")}
    if near is None or far is None:
        return undecided((EXTRAPOLATION,), "The study has no sliding losses.")
    change = paired(figures.by_seed(f"sliding_{longest}"), figures.by_seed("sliding_1x"))
    high = None if change is None or change.half_width is None else change.mean + change.half_width
    flat = high is not None and far.n >= EXPLORATORY and high < FLAT * near.mean
    shown = "; ".join(
        f"at L, less {other}'s {each.text}" for other, each in local.items() if each is not None
    )
    return Judgement(
        Verdict.UNDECIDED,
        f"sliding loss {interval(near.mean, near.half_width)} at L and {interval(far.mean, far.half_width)} "
        f"at {multiple(results.primary):g} L; {shown}",
        (
            "The first part holds here: ALiBi keeps its loss past L. " if flat else "Past L it does not "
            "clearly keep its loss. "
        )
        + "Its loss at L is higher than RoPE's and T5's, which fits the second part but does not prove it: "
        "to show that the linear decay is the cause needs losses by how far back the needed token lies.",
        study=EXTRAPOLATION.study,
        setting=setting(results),
    )  # fmt: skip


def _curse(studies: Studies) -> Judgement:
    results = studies.results(EXTRAPOLATION.study)
    figures = None if results is None else arm(results, "alibi")
    if results is None or figures is None or results.primary is None:
        return undecided((EXTRAPOLATION,), "The study is not there.")
    k = multiple(results.primary)
    longest = name(k)
    near, far, gain = (
        figures.by_seed(figure)
        for figure in ("early_token_curse_1x", f"early_token_curse_{longest}", f"context_gain_{longest}")
    )
    seeds = sorted(near.keys() & far.keys() & gain.keys())
    lifted = {seed: near[seed] - far[seed] for seed in seeds}
    both = paired(lifted, dict.fromkeys(seeds, 0.0))
    more = paired(lifted, gain)  # above 0 where the curse is more than half of the gain
    tested = gain_reading(results, f"context_gain_{longest}", "alibi")
    if both is None or more is None or tested is None or more.half_width is None or both.half_width is None:
        return undecided((EXTRAPOLATION,), "The study has too few finished runs.")
    sides = [read_difference(each, None if each.p is None else min(1.0, 2 * each.p)) for each in (both, more)]
    mostly, against = sides == ["higher", "higher"], sides[1] == "lower"
    return Judgement(
        Verdict.HOLDS_HERE if mostly else Verdict.REFUTED_HERE if against else Verdict.UNDECIDED,
        f"from L to {k:g} L the early-token curse falls by {interval(both.mean, both.half_width, 3)} nats, "
        "and the gain of longer context in sliding windows is "
        f"{interval(tested.difference.mean, tested.difference.half_width, 3, sign=True)} nats",
        "All that windows side by side gain with their length is the curse going away: where every token "
        "has its context, a longer one brings no gain that can be seen."
        if mostly and tested.reading != "higher"
        else "More than half of the gain is the curse going away."
        if mostly
        else "The interval does not say which part is larger.",
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
        "Nothing: it follows from the definition (Press et al. 2022).",
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
        "Losses by the distance of the token that is needed; larger models and another text.",
        _extrapolates,
        question="Does ALiBi extrapolate, and model near text worse?",
    ),
    Claim(
        43,
        "What ALiBi gains past its training length is mostly the early-token curse going away.",
        ("Press et al. 2022 (ALiBi), in its analysis",),
        "From L to 8 L the early-token curse falls by more than the loss in sliding windows does.",
        "Early-token curse and context gain of the study extrapolation, both on the same tokens, by seed.",
        "Larger models and another text.",
        _curse,
    ),
)  # fmt: skip
