"""What the W&B Report of a study says: how to read it, and what the figures of each section are."""

from poslab.config.installation import typed
from poslab.loggers.dashboard.contents import Contents

NO_QUESTION = "None is on record: question=... with the training command says what a study is to answer."

# What holds of each section whatever a study measures; `section` adds the rest.
SECTIONS = {
    "Convergence": (
        "Validation loss is on held-out text, in windows of L tokens; training loss and the gradient's norm "
        "(before clipping) are means since the point before.",
        "Seconds are those of training alone, and compare on one kind of machine only.",
    ),
    "Extrapolation": (
        "All lengths score the same target tokens. Non-overlapping windows score every token; sliding ones "
        "move by L/8 and score their last L/8 tokens.",
        "Context gain: sliding loss at L less sliding loss there; below 0 the longer context hurts. "
        "Early-token curse: non-overlapping less sliding loss on the same targets.",
        "Loss by position: the mean at each position of the longest windows, in bins four an octave.",
    ),
    "Cost": (
        "Memory is the most that the run's process has held so far, of its GPU where it uses one. Speed, "
        "memory and seconds compare on one kind of machine only. FLOPs are counted from the model's shape.",
    ),
    "Schemes": ("What the trained scheme does by itself, without the rest of the model.",),
}


def reading(study: str) -> tuple[str, ...]:
    """How to read all of the panels; an item each."""
    return (
        "A line or a bar is an arm: a scheme under an attention, and whatever else the study changes. It is "
        "the mean over the arm's seeds, with a band from the lowest seed to the highest, which is no "
        "confidence interval.",
        f"The runs are those of the study {study} that compare arms, as far as each got: runs that failed or "
        "diverged count here. The report page leaves them out and lists each with its reason.",
        "Losses are means of the negative log-likelihood, in nats a token; bits per byte compare between "
        "tokenizers. L is the training length. A line ends where its scheme is not defined. Lines are not "
        "smoothed.",
    )


def page(study: str) -> tuple[str, ...]:
    """Where the study's report page lies."""
    return (
        "What the arms differ by, with intervals and tests, is in the study's report page: take what you "
        f"claim from there. It is the artifact report-{study} of type report in this project, and "
        f"reports/{study}/index.html where the study was made; {typed('report')} study={study} makes it from "
        "the run records.",
    )


def section(name: str, contents: Contents) -> tuple[str, ...]:
    """What the figures of a section are, an item each: definitions and units."""
    items = list(SECTIONS[name])
    if name == "Extrapolation" and contents.longest is not None:
        items.append(
            "Usable length: the largest tested length up to which the sliding loss stays within 5 % (1 %) of "
            "its value at L; of the longest one tested it says at least. The bar is the worst seed's."
        )
    if name == "Extrapolation" and contents.failed:
        items.append(
            "Failure position: the first position past L whose bin loses more than 5 % over the mean of L/2 "
            "to L, the first of any seed; arms that do not fail do not show."
        )
    if name == "Extrapolation" and contents.rescaled:
        items.append(
            "Changed rotation: the trained model evaluated with its frequencies changed, without training "
            f"again ({', '.join(contents.rescaled)})."
        )
    if name == "Extrapolation" and contents.retrieval:
        items.append("Retrieval: the share of questions whose every answer token was the most likely one.")
    if name == "Schemes" and contents.bias:
        items.append("Bias: what is added to an attention logit at a distance, a line a head.")
    if name == "Schemes" and contents.bound:
        items.append(
            "Bound: an upper bound of the size of RoPE's rotated product of a query and a key, 1 at distance "
            "0. It does not say what a trained head does."
        )
    if name == "Schemes" and contents.attended:
        items.append(
            "Attention distance: how many tokens back a head attends on the validation text, weighted by its "
            "attention."
        )
    return tuple(items)
