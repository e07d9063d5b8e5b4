"""What trained states hold of the position; and claims for which poslab lacks the model or the task."""

from claims.contract import BOOK, Claim, Judgement, Verdict, untested
from claims.studies import VARIANTS, Results, Studies, setting
from poslab import Estimate, estimate, interval


def explained(results: Results, label: str) -> Estimate | None:
    """Over seeds, the share of the position's variance that a linear probe explains in the best layer."""
    best: dict[str, float] = {}
    for row in results.rows("position_probe", arm=label):
        best[row["run"]] = max(row["explained"], best.get(row["run"], row["explained"]))
    return estimate(list(best.values()))


def _absolute(studies: Studies) -> Judgement:
    results = studies.results(VARIANTS.study)
    rope = None if results is None else explained(results, "rope")
    if results is None or rope is None:
        return untested(
            (VARIANTS,),
            "Scores under RoPE know only distances (claim 6), but the causal mask makes places differ from "
            "two layers on (claim 25), so it is a question of what trained hidden states hold. Each run "
            "records what a linear probe reads of the position; a study with these records is missing.",
        )
    none = explained(results, "none")
    beside = "" if none is None else f"; without any scheme {interval(none.mean, none.half_width, 3)}"
    return Judgement(
        Verdict.UNDECIDED,
        "share of the position's variance that a linear probe explains, in the layer that has most of it: "
        f"{interval(rope.mean, rope.half_width, 3)}{beside}",
        "Scores under RoPE know only distances (claim 6); what a hidden state holds of the place comes from "
        "the causal mask (claim 25). The probe has a coefficient for each dimension of a state and is fitted "
        "on half of the validation windows, a dozen by default: so few that it may find nothing where "
        "something is. A share below 0 says that it fits its own windows instead.",
        study=VARIANTS.study,
        setting=setting(results),
    )


def _recurrent(studies: Studies) -> Judgement:
    return untested(
        (), "It takes a recurrent mixer, such as those of RWKV or Mamba, which poslab does not have."
    )


def _tasks(studies: Studies) -> Judgement:
    return untested(
        (),
        "It takes tasks with answers that need longer inputs than training had, such as addition; poslab has "
        "a copy task and a pass-key, and no study of them in which models of this size learn to retrieve.",
    )


CLAIMS = (
    Claim(
        38,
        "RoPE loses the absolute position.",
        (BOOK,),
        "A linear probe reads the position from hidden states no better than chance.",
        "Least squares of the position in the window on the hidden states after each layer, fitted on half "
        "of the validation windows and read on the others, in the study variants.",
        "A probe fitted on a thousand windows with a ridge penalty, beside one of shuffled positions; larger "
        "models and longer windows.",
        _absolute,
    ),
    Claim(
        39,
        "Recurrent models (RWKV, Mamba) carry positions implicitly.",
        (BOOK,),
        "Without a positional scheme they lose no more past their training length than within it.",
        "Not at all yet.",
        "A recurrent mixer as an attention of poslab, and a study of it.",
        _recurrent,
    ),
    Claim(
        46,
        "Models without positions generalise best to longer tasks.",
        ("Kazemnejad et al. 2023 (arXiv 2305.19466)",),
        "On tasks longer than those of training, pos=none answers more than any other scheme.",
        "Not at all yet.",
        "Tasks of several lengths, and a study over five seeds of models that solve them within their "
        "training length.",
        _tasks,
    ),
)
