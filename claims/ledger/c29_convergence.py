"""How fast RoPE learns: against learned positions and T5, in a Performer, and on masked text."""

import math

from claims.contract import (
    BLOG,
    ROFORMER,
    TRUE_IF_LOWER,
    Claim,
    Figure,
    Judgement,
    Line,
    Part,
    Verdict,
    in_parts,
    untested,
)
from claims.studies import (
    BUDGET,
    CONVERGENCE,
    EXTRAPOLATION,
    MASKED,
    PERFORMER,
    Reading,
    Results,
    Studies,
    compared,
    ratio_text,
    setting,
    time_ratio,
)

SHARE = 0.55
PARAMETERS = 100e6  # with at least so many, a model counts as one with 125 M
OTHERS = {"learned": "learned positions", "t5": "T5"}
LOSSES = tuple(tenths / 10 for tenths in range(40, 9, -1))  # nats at which ratios of tokens are read


def _largest(results: Results) -> int:
    """Return the number of parameters of the largest trained model."""
    return max(int(row["parameters"] or 0) for row in results.arms.values())


def _warmed_up(results: Results) -> float:
    """Return the number of tokens after which the warm-up has ended."""
    trainer = results.configs[results.reference]["trainer"]
    steps = int(trainer.get("warmup_steps") or 0) / int(trainer["max_steps"])
    budget = results.rows("summary", arm=results.reference, status="done")[0]["budget"]
    return float(budget * steps)


def ratios_by_loss(results: Results, arm: str, against: str) -> dict[float, float]:
    """Return one arm's tokens to a loss over another's (geometric mean), by losses that all runs reached."""
    warm, found = _warmed_up(results), {}
    for loss in LOSSES:
        values, base = (results.study.tokens_to(label, loss) for label in (arm, against))
        pairs = [(values[seed], base[seed]) for seed in values.keys() & base.keys()]
        tokens = [(a, b) for a, b in pairs if a is not None and b is not None and min(a, b) > warm]
        if tokens and len(tokens) == len(pairs):
            found[loss] = math.exp(math.fsum(math.log(a / b) for a, b in tokens) / len(tokens))
    return found


def _steps(studies: Studies) -> Judgement:
    results = studies.results(CONVERGENCE.study)
    if results is None:
        return untested((CONVERGENCE,), "The study was not run.")
    large = _largest(results) >= PARAMETERS
    judged, lines = [], []
    for arm, named in OTHERS.items():
        found = time_ratio(results, "rope", arm, SHARE, len(OTHERS))
        by_loss = {} if found is None else ratios_by_loss(results, "rope", arm)
        verdict = TRUE_IF_LOWER[found[1]] if large and found is not None else Verdict.NOT_TESTED
        ratio = "not known" if found is None else f"{ratio_text(found[0])} of its tokens to the target loss"
        if by_loss:
            losses = tuple(by_loss)
            ratio += (
                f"; between ×{min(by_loss.values()):.2f} and ×{max(by_loss.values()):.2f} for losses from "
                f"{losses[0]:.1f} to {losses[-1]:.1f}"
            )
            lines.append(Line(f"over {named}", losses, tuple(by_loss.values())))
        judged.append(Part(f"Against {named}.", verdict, ratio))
    figure = Figure("steps_by_loss", "RoPE's tokens to a loss over those of another scheme",
                    "Loss, nats", "Ratio of tokens", tuple(lines))  # fmt: skip
    return in_parts(
        *judged,
        why="The ratio is not a constant: it depends on the loss that both have to reach."
        if large
        else f"Not tested at that size: the models here have {_largest(results) / 1e6:.1f} M parameters. "
        "Their ratio is not a constant: it depends on the loss that both have to reach.",
        figures=(figure,) if lines else (),
        study=CONVERGENCE.study,
        setting=setting(results),
    )


def _equal_steps(studies: Studies) -> Judgement:
    studied = {command: studies.results(command.study) for command in (EXTRAPOLATION, BUDGET)}
    missing = tuple(command for command, results in studied.items() if results is None)
    read = [results for results in studied.values() if results is not None]
    if not read:
        return untested(missing, "The studies were not run.")
    judged = {}
    for arm, named in OTHERS.items():
        found = [
            (f"{_rates(results)} after {results.per_parameter(rope)} tokens per parameter", difference)
            for results in read
            for steps, rope in results.by_steps("rope").items()
            if (against := results.by_steps(arm).get(steps)) is not None
            and (difference := compared(results, "loss_1x", rope, against, 8)) is not None
        ]
        readings = {difference.reading for _, difference in found}
        reading: Reading = "open"  # to win takes a win at each budget; to lose, one loss and no win
        if readings == {"lower"}:
            reading = "lower"
        elif "higher" in readings and "lower" not in readings:
            reading = "higher"
        listed = "; ".join(f"{setting} {difference.text}" for setting, difference in found)
        judged[arm] = Part(
            f"Against {named}.",
            TRUE_IF_LOWER[reading],
            f"RoPE's loss at L less {arm}'s, {listed}" if listed else "not measured",
        )
    early = (
        " T5's lead shrinks with training here; with 125 to 150 M and 1.4 B parameters and longer training, "
        "T5 was behind by 0.04 and 0.05 nats (EleutherAI 2021, Rotary Embeddings: A Relative Revolution)."
        if judged["t5"].verdict is Verdict.REFUTED_HERE
        else ""
    )
    outcome = {
        Verdict.HOLDS_HERE: "wins at each budget",
        Verdict.REFUTED_HERE: "is shown to lose at some budget and to win at none",
        Verdict.UNDECIDED: "is not shown to win at each budget",
    }
    return in_parts(
        *judged.values(),
        why=f"Against learned positions RoPE {outcome[judged['learned'].verdict]}; against T5 it "
        f"{outcome[judged['t5'].verdict]}.{early}",
        study=read[-1].study.name,
        setting="; ".join(dict.fromkeys(setting(results) for results in read)),
        missing=missing,
    )


def _rates(results: Results) -> str:
    return "with rates tuned for each scheme" if results.rows("rates") else "with equal rates"


def _performer(studies: Studies) -> Judgement:
    results = studies.results(PERFORMER.study)
    difference = None if results is None else compared(results, "aulc", "rope", "none")
    if results is None or difference is None:
        return untested((PERFORMER,), "The study was not run.")
    return Judgement(
        Verdict.UNDECIDED,
        f"mean loss over training, Performer with RoPE less without positions {difference.text}",
        "Neither enwik8 nor a Performer with learned positions was trained; the paper's Performer without "
        "RoPE has those. The numbers compare RoPE with no positions on another text: the mean of the "
        "validation loss over the logarithm of the training tokens shows which is ahead during training.",
        study=PERFORMER.study,
        setting=setting(results),
    )


def _masked(studies: Studies) -> Judgement:
    results = studies.results(MASKED.study)
    found = None if results is None else time_ratio(results, "rope", "learned", 1.0, 1)
    if results is None:
        return untested((MASKED,), "The study was not run.")
    ratio = "no target was reached by both" if found is None else ratio_text(found[0])
    return Judgement(
        Verdict.UNDECIDED if found is None else TRUE_IF_LOWER[found[1]],
        f"rope's tokens to the loss that learned has at 75 % of its budget, over those of learned: {ratio}",
        "RoFormer uses RoPE and BERT learned positions. Here both have one small size and one masked "
        "objective, and everything else is equal.",
        study=MASKED.study,
        setting=setting(results),
    )


CLAIMS = (
    Claim(
        29,
        "RoPE needs less than 55 % of the steps, at 125 M parameters, against learned positions and T5.",
        (BLOG,),
        f"The ratio of steps to a common loss is below {SHARE}, with its whole interval, against each.",
        "Tokens to the target of the study convergence, and to every tenth of a nat that all runs reach "
        "after the warm-up; geometric means over seeds.",
        "A model with 125 M parameters on a GPU.",
        _steps,
        question="Does RoPE need only 55 % of the steps of learned positions and T5?",
    ),
    Claim(
        30,
        "At equal steps RoPE beats learned positions and T5 in loss.",
        (BLOG,),
        "At the end of training its loss at L is lower than that of each.",
        "Loss at L of rope less those of learned and t5 on all targets of adjacent windows, with equal "
        "rates (the study extrapolation) and with rates tuned for each scheme and budget (budget). p is the "
        "study's own if it tests the pair, and otherwise corrected for the eight comparisons. The claim "
        "holds if RoPE wins at each budget; losing at one and winning at none refutes it.",
        "Larger models, more tokens per parameter and another text.",
        _equal_steps,
        question="Does RoPE beat learned positions and T5 at equal steps?",
    ),
    Claim(
        31,
        "On enwik8 a Performer with RoPE converges faster than one without.",
        (BLOG, ROFORMER),
        "The mean loss over training is lower with RoPE, with its whole interval.",
        "The loss averaged over training (AULC) of performer with rope less that with none, in the study "
        "performer.",
        "The study performer on enwik8 (data=enwik8), with learned positions beside it.",
        _performer,
    ),
    Claim(
        32,
        "RoFormer converges faster than BERT in masked language modelling.",
        (BLOG, ROFORMER),
        "The ratio of steps to a common loss is below 1.",
        "Tokens to the target of rope over those of learned, in the study masked.",
        "More seeds, BERT's size and budget.",
        _masked,
    ),
)  # fmt: skip
