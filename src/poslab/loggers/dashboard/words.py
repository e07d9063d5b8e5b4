"""The text of a study's W&B Report: how to read it, and what the figures of each section are."""

from poslab.config.installation import typed

NO_QUESTION = "None is on record: question=... on the training command's line sets the question of a study."

# What the figures of each section are, where a study has measured them.
SECTIONS = {
    "Convergence": (
        "Validation loss is on held-out text, in windows of L tokens; training loss and the gradient's norm "
        "(before clipping) are means since the point before.",
        "Seconds are those of training only, and compare on one kind of machine only.",
    ),
    "Extrapolation": (
        "All lengths score the same target tokens. Non-overlapping windows score every token; sliding ones "
        "move by L/8 and score their last L/8 tokens.",
        "Context gain: sliding loss at L less sliding loss at the length; below 0 the longer context hurts. "
        "Early-token curse: non-overlapping less sliding loss on the same targets.",
        "Loss by position: the mean at each position of the longest windows, in four bins per octave.",
        "Usable length: the largest tested length up to which the sliding loss stays within 5 % (1 %) of its "
        "value at L; at the longest tested length it reads at least. The bar is the worst seed's.",
        "Failure position: the first position past L with the loss of its bin over 5 % above the mean of L/2 "
        "to L, the first of any seed; arms that do not fail are not shown.",
        "Changed rotation: the trained model evaluated with its frequencies changed.",
        "Retrieval: the share of questions with every token of the answer the most likely one.",
    ),
    "Cost": (
        "Memory is the most that the run's process has held so far, of its GPU where it uses one. Speed, "
        "memory and seconds compare on one kind of machine only. FLOPs are counted from the model's shape.",
    ),
    "Schemes": (
        "What the trained scheme does by itself, without the rest of the model.",
        "Bias: the number added to an attention logit at a distance, a line per head.",
        "Bound: an upper bound of the size of RoPE's rotated product of a query and a key, 1 at distance 0. "
        "It does not show what a trained head does.",
        "Attention distance: how many tokens back a head attends on the validation text, weighted by its "
        "attention.",
    ),
    "Other measurements": (
        "What else the study measures, a panel for each line. The report page explains each.",
    ),
}


def reading(study: str) -> tuple[str, ...]:
    """Return how to read the panels, as items of a list."""
    return (
        "A line or a bar is an arm: a scheme under an attention, and whatever else the study changes. It is "
        "the mean over the arm's seeds, with a band from the lowest seed to the highest, which is no "
        "confidence interval.",
        f"The runs are those of the study {study} that compare arms, also those that failed or diverged, up "
        "to their last step. The report page leaves these out and lists each with its reason.",
        "Losses are means of the negative log-likelihood, in nats per token; bits per byte compare between "
        "tokenizers. L is the training length. A line ends where its scheme is not defined. Lines are not "
        "smoothed.",
    )


def page(study: str) -> tuple[str, ...]:
    """Return where the study's report page is."""
    return (
        "The differences between the arms, with intervals and tests, are in the study's report page: take "
        f"your claims from it. It is the artifact report-{study} of type report in this project, and "
        f"reports/{study}/index.html where the study was run; {typed('report')} study={study} writes it from "
        "the run records.",
    )
