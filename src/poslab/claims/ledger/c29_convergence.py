"""How fast RoPE learns, beside learned positions and T5, under linear attention, and with masks."""

from collections.abc import Mapping

from poslab.analysis.results import Results
from poslab.analysis.statistics import EXPLORATORY, Ratio
from poslab.claims.contract import BLOG, Claim, Judgement, Verdict, undecided
from poslab.claims.studies import (
    ATTENTION,
    CONVERGENCE,
    EXTRAPOLATION,
    FAIR,
    PERFORMER,
    Reading,
    Studies,
    compared,
    ratio_text,
    setting,
    time_ratio,
)

SHARE = 0.55
PARAMETERS = 100e6  # from here on a model counts as one of 125 M
OTHERS = {"learned": "learned positions", "t5": "T5"}


def _named(labels: list[str]) -> str:
    return " and ".join(OTHERS[label] for label in labels)


def _with_shares(labels: list[str], ratios: Mapping[str, tuple[Ratio, Reading]]) -> str:
    """Each with the share of its steps that RoPE takes, where that is more than a bound."""
    means = {label: ratios[label][0].mean for label in labels}
    shares = {
        label: "" if mean is None else f" ({100 * mean:.0f} % of its steps)" for label, mean in means.items()
    }
    return " and ".join(f"{OTHERS[label]}{share}" for label, share in shares.items())


def _largest(results: Results) -> int:
    """The most parameters of a model that was trained."""
    return max(run.manifest.parameters or 0 for run in results.finished)


def _steps(studies: Studies) -> Judgement:
    made = [each for each in (CONVERGENCE, EXTRAPOLATION) if studies.results(each.study) is not None]
    missing = () if CONVERGENCE in made else (CONVERGENCE,)
    if not made:
        return undecided((CONVERGENCE,), "The study is not there.")
    results = studies.results(made[0].study)
    assert results is not None
    ratios = {other: time_ratio(results, "rope", other, SHARE, len(OTHERS)) for other in OTHERS}
    known = {other: each for other, each in ratios.items() if each is not None}
    refuted = [other for other, (_, side) in known.items() if side == "higher"]
    shown_by = [other for other, (_, side) in known.items() if side == "lower"]
    small = _largest(results) < PARAMETERS
    verdict = (
        Verdict.UNDECIDED
        if small
        else Verdict.REFUTED_HERE
        if refuted
        else Verdict.HOLDS_HERE
        if shown_by == [*OTHERS]
        else Verdict.UNDECIDED
    )
    open_ = [other for other in OTHERS if other not in (*refuted, *shown_by)]
    shown = "; ".join(f"over {other}'s {ratio_text(each)}" for other, (each, _) in known.items())
    parts = [
        "Not tested: no model of 125 M parameters was trained. What follows is of this size."
        if small
        else "",
        f"It does not hold against {_with_shares(refuted, known)}." if refuted else "",
        f"It holds against {_with_shares(shown_by, known)}." if shown_by else "",
        f"Against {_named(open_)} the interval does not decide." if open_ else "",
        "For another loss the share is another: arms.csv of the study has it at 50 and 90 % of the budget.",
        "The rate fell as a cosine to the end of the budget, which makes such times partly a property of "
        "the schedule."
        if made[0] is EXTRAPOLATION
        else "",
    ]
    return Judgement(
        verdict,
        f"RoPE's tokens to the target loss {shown}",
        " ".join(part for part in parts if part),
        study=made[0].study,
        setting=setting(results),
        missing=missing,
    )


def _equal_steps(studies: Studies) -> Judgement:
    results = studies.results(EXTRAPOLATION.study)
    if results is None:
        return undecided((EXTRAPOLATION,), "The study is not there.")
    made = {other: compared(results, "sliding_1x", "rope", other, 2) for other in OTHERS}
    known = {other: each for other, each in made.items() if each is not None}
    lower = [other for other, each in known.items() if each.reading == "lower"]
    higher = [other for other, each in known.items() if each.reading == "higher"]
    shown = "; ".join(f"less {other}'s {each.text}" for other, each in known.items())
    parts = [
        f"It beats {_named(lower)}." if lower else "",
        f"It does not beat {_named(higher)}, whose loss is lower." if higher else "",
        "" if lower or higher else "The intervals do not order them.",
        _with_tuned_rates(studies),
    ]
    return Judgement(
        Verdict.REFUTED_HERE if higher else Verdict.HOLDS_HERE if lower == [*OTHERS] else Verdict.UNDECIDED,
        f"RoPE's sliding loss at L {shown}",
        " ".join(part for part in parts if part),
        study=EXTRAPOLATION.study,
        setting=setting(results),
    )


def _with_tuned_rates(studies: Studies) -> str:
    """The same differences where each scheme has the learning rates that suit it; "" without that study."""
    results = studies.results(FAIR.study)
    made = {} if results is None else {o: compared(results, "sliding_1x", "rope", o, 2) for o in OTHERS}
    shown = "; ".join(f"less {other}'s {each.text}" for other, each in made.items() if each is not None)
    return f"With rates tuned for each scheme (study {FAIR.study}): {shown}." if shown else ""


def _performer(studies: Studies) -> Judgement:
    made = [each for each in (PERFORMER, ATTENTION) if studies.results(each.study) is not None]
    results = studies.results(made[0].study) if made else None
    if results is None:
        return undecided(
            (PERFORMER,),
            "The study is not there; it has another text than enwik8, which data=enwik8 fetches.",
        )
    # A label has the attention only where a study has several.
    labels = {
        one.arm.pos: one.arm.label for one in results.arms if one.arm.attention == "performer" and one.rows
    }
    two = {"rope", "none"} <= labels.keys()
    difference = compared(results, "aulc", labels["rope"], labels["none"]) if two else None
    if difference is None:
        return undecided((PERFORMER,), "The study has no Performer with and without RoPE.")
    few = results.seeds < EXPLORATORY  # of a study with other questions: the one for this claim is smaller
    too_few = f" The study {made[0].study} has too few seeds to decide." if few else ""
    return Judgement(
        Verdict.UNDECIDED,
        f"mean loss on the way, with RoPE less without {difference.text}",
        "This is another text than enwik8, and the claim is of a model with learned positions beside RoPE, "
        "which was not trained. The mean of the validation loss over the logarithm of the training tokens "
        f"says who is ahead on the way.{too_few}",
        study=None if few else made[0].study,
        setting=setting(results),
        missing=(PERFORMER,) if few else (),
    )


def _masked(studies: Studies) -> Judgement:
    return undecided(
        (), "It takes a masked objective and attention without a mask, which poslab does not have."
    )


CLAIMS = (
    Claim(
        29,
        "RoPE needs less than 55 % of the steps, at 125 M parameters, against learned positions and T5.",
        (BLOG,),
        f"The ratio of steps to a common loss is below {SHARE}, with its whole interval, against both.",
        "Tokens to the target of the study convergence, or of extrapolation where that is not there; a "
        "geometric mean over seeds.",
        "The study convergence, and a model of 125 M parameters on a GPU.",
        _steps,
        question="Does RoPE need only 55 % of the steps of learned positions and T5?",
    ),
    Claim(
        30,
        "At equal steps RoPE beats learned positions and T5 in loss.",
        (BLOG,),
        "At the end of training its loss at L is lower than both.",
        "Sliding loss at L of rope less those of learned and t5, by the tests of the study extrapolation.",
        "Larger models and another text.",
        _equal_steps,
        question="Does RoPE beat learned positions and T5 at equal steps?",
    ),
    Claim(
        31,
        "On enwik8 a Performer with RoPE converges faster than one without.",
        (BLOG, "RoFormer (Su et al. 2021)"),
        "The mean loss on the way is lower with RoPE, with its whole interval.",
        "The loss averaged over training (AULC) of performer with rope less that with none, in the study "
        "performer, or in attention where that is not there.",
        "The study performer on enwik8 (data=enwik8).",
        _performer,
    ),
    Claim(
        32,
        "RoFormer converges faster than BERT in masked language modelling.",
        (BLOG, "RoFormer (Su et al. 2021)"),
        "The ratio of steps to a common loss is below 1.",
        "Not at all yet.",
        "A masked objective with bidirectional attention, and a study of rope and learned under it.",
        _masked,
    ),
)  # fmt: skip
