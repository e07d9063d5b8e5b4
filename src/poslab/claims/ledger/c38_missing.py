"""Claims for which poslab lacks the model, the probe or the task."""

from poslab.claims.contract import BOOK, Claim, Judgement, undecided
from poslab.claims.studies import Studies


def _absolute(studies: Studies) -> Judgement:
    return undecided(
        (),
        "Scores under RoPE know distances alone (claim 6), but the causal mask tells places apart from two "
        "layers on (claim 25), so it is a question of what trained hidden states hold: it takes a linear "
        "probe of the position, which poslab does not have.",
    )


def _recurrent(studies: Studies) -> Judgement:
    return undecided(
        (), "It takes a recurrent mixer, such as those of RWKV or Mamba, which poslab does not have."
    )


def _tasks(studies: Studies) -> Judgement:
    return undecided(
        (),
        "It takes tasks whose answers need longer inputs than training had, such as addition; poslab has a "
        "copy task and a pass-key, and no study of them in which models of this size learn to retrieve.",
    )


CLAIMS = (
    Claim(
        38,
        "RoPE loses the absolute position.",
        (BOOK,),
        "A linear probe reads the position from hidden states no better than chance.",
        "Not at all yet.",
        "A linear probe on the hidden states of trained models, by layer.",
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
        ("Kazemnejad et al. 2023",),
        "On tasks longer than those of training, pos=none answers more than any other scheme.",
        "Not at all yet.",
        "Tasks of several lengths, and a study over five seeds of models that solve them within their "
        "training length.",
        _tasks,
    ),
)
