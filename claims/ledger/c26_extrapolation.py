"""Whether RoPE and sinusoids work past the training length."""

import pandas

from claims.contract import (
    BOOK,
    TIPS,
    Claim,
    Judgement,
    Part,
    Verdict,
    exactly,
    in_parts,
    untested,
)
from claims.studies import (
    EXTRAPOLATION,
    Results,
    Studies,
    compared,
    context_used,
    gain_reading,
    multiple,
    name,
    setting,
)
from poslab import interval, number

RELATIVES = {"alibi": "ALiBi", "t5": "T5"}


def _usable(results: Results, label: str) -> str:
    """Return up to which length an arm's loss stays within 5 % of its loss at L, as text."""
    columns = results.arms[label]
    if pandas.isna(columns["usable_length_min"]):
        return "not known"
    low, high = int(columns["usable_length_min"]), int(columns["usable_length_max"])
    least = "at least " if columns["usable_length_min_at_least"] else ""
    return f"{least}{low:,} tokens" if low == high else f"{least}{low:,} to {high:,} tokens"


def _mean(results: Results, label: str, k: float) -> str:
    """Return an arm's mean sliding loss at k times the training length, as text."""
    found = results.estimate(label, f"sliding_{name(k)}")
    return number(None if found is None else found.mean)


def _past(studies: Studies, label: str, working: bool) -> Judgement:
    """Judge whether an arm works past L; `working` tells whether the claim is that it does."""
    results = studies.results(EXTRAPOLATION.study)
    if results is None or label not in results.arms or results.primary is None:
        return untested((EXTRAPOLATION,), "The study was not run, or has no such arm.")
    k = multiple(results.primary)
    gain = gain_reading(results, f"context_gain_{name(k)}", label)
    near, far = (results.estimate(label, figure) for figure in ("sliding_1x", f"sliding_{name(k)}"))
    if gain is None or near is None or far is None:
        return untested((EXTRAPOLATION,), "The study has no sliding losses past L.")
    fails = gain.reading == "lower"
    verdict = Verdict.UNDECIDED
    if gain.reading != "open":
        verdict = Verdict.REFUTED_HERE if fails == working else Verdict.HOLDS_HERE
    return Judgement(
        verdict,
        f"sliding loss {interval(near.mean, near.half_width)} at L, {interval(far.mean, far.half_width)} at "
        f"{k:g} L; within 5 % of its loss at L up to {_usable(results, label)}",
        (
            f"At {k:g} L the longer context costs {number(-gain.difference.mean, 3)} nats instead of helping."
            if fails
            else "The interval does not show that the longer context harms."
            if gain.reading == "open"
            else "The longer context helps."
        )
        + f" {context_used(results, label, 'its')}",
        study=EXTRAPOLATION.study,
        setting=setting(results),
    )


def _any_length(studies: Studies) -> Judgement:
    judged = _past(studies, "rope", working=True)
    if judged.study is None:
        return judged
    results = studies.results(judged.study)
    assert results is not None
    assert results.primary is not None
    length, k = results.context_length, multiple(results.primary)
    return in_parts(
        Part(
            "At inference the relative distances are those of training.",
            exactly(k <= 1),
            f"training has distances up to L − 1, a window of {k:g} L has distances up to {k:g} L − 1",
        ),
        Part("RoPE goes to any length.", judged.verdict, judged.numbers),
        why=f"{judged.why} Each pair is periodic, but all of them together do not return within 128 K tokens "
        f"(claim 23), and the slow ones complete no turn within {length} tokens: past that they take angles "
        "that did not occur in training. Whether that is the reason was not tested by this study.",
        study=judged.study,
        setting=judged.setting,
    )


def _best(studies: Studies) -> Judgement:
    results = studies.results(EXTRAPOLATION.study)
    if results is None or results.primary is None or "rope" not in results.arms:
        return untested((EXTRAPOLATION,), "The study was not run, or has no such arm.")
    against = {arm: compared(results, results.primary, "rope", arm) for arm in RELATIVES}
    found = {arm: difference for arm, difference in against.items() if difference is not None}
    if not found:
        return untested((EXTRAPOLATION,), "The study has no other relative scheme.")
    worse = [arm for arm, difference in found.items() if difference.reading == "higher"]
    best = len(found) == len(RELATIVES) and all(
        difference.reading == "lower" for difference in found.values()
    )
    listed = "; ".join(f"less {arm}'s {difference.text}" for arm, difference in found.items())
    k = multiple(results.primary)
    losses = " and ".join(f"{RELATIVES[arm]}'s is {_mean(results, arm, k)}" for arm in worse)
    return Judgement(
        Verdict.REFUTED_HERE if worse else Verdict.HOLDS_HERE if best else Verdict.UNDECIDED,
        f"RoPE's sliding loss at {k:g} L {listed}",
        (
            f"No. At {k:g} times the training length its loss is {_mean(results, 'rope', k)} nats, where "
            f"{losses}; at the training length, {results.context_length} tokens, it is "
            f"{_mean(results, 'rope', 1)}. {context_used(results, 'rope', 'its')}"
        )
        if worse
        else "The intervals do not order the schemes.",
        study=EXTRAPOLATION.study,
        setting=setting(results),
    )


CLAIMS = (
    Claim(
        26,
        "At inference the relative distances are those of training, and RoPE is periodic, so it goes to any "
        "length.",
        (BOOK,),
        "Windows of 8 L have no distance that training lacked, and the loss in them is not higher than at L.",
        "Context gain of rope at 8 L, by the test of the study extrapolation, and its usable length.",
        "Larger models, longer training and another text.",
        _any_length,
    ),
    Claim(
        28,
        "RoPE extrapolates better than other relative encodings, to any length.",
        (TIPS, BOOK),
        "At 8 L its sliding loss is lower than those of ALiBi and T5.",
        "Sliding loss at 8 L of rope less those of alibi and t5, by the tests of the study extrapolation.",
        "Larger models, more relative schemes (the study catalogue), another text.",
        _best,
        question="Does RoPE extrapolate?",
    ),
    Claim(
        36,
        "Sinusoidal positions extrapolate badly.",
        (BOOK,),
        "At 8 L the loss in sliding windows is higher than at L.",
        "Context gain of sinusoidal at 8 L, by the test of the study extrapolation, and its usable length.",
        "Larger models and another text.",
        lambda studies: _past(studies, "sinusoidal", working=False),
    ),
)
