"""The text of a study's W&B Report: how to read it, and what each section's figures are."""

from poslab.config.installation import typed

NO_QUESTION = "None is on record. To set a study's question, add question=... to the training command."

# Explanations of each section's figures, shown if a study has measured them.
SECTIONS = {
    "Convergence": (
        "Validation loss is on held-out text, in windows of L tokens. Training loss and gradient norm "
        "(before clipping) are means since the previous point.",
        "Seconds are of training only, and compare only on the same kind of machine.",
    ),
    "Extrapolation": (
        "All lengths score the same target tokens. Non-overlapping windows score every token; sliding ones "
        "move by L/8 tokens and score their last L/8 tokens.",
        "Context gain: sliding loss at L minus sliding loss at the length; below 0 longer context hurts. "
        "Early-token curse: non-overlapping minus sliding loss on the same targets.",
        "Loss by position: the mean at each position of the longest windows, in four bins per octave.",
        "Usable length: the largest tested length up to which the sliding loss stays within 5 % (1 %) of its "
        "value at L. At the longest tested length it is a lower bound. The bar shows the worst seed.",
        "Failure position: the first position past L where the loss of its bin is over 5 % above the mean "
        "from L/2 to L. The bar shows the first of any seed; arms that do not fail are not shown.",
        "Changed rotation: the trained model evaluated with its frequencies changed.",
        "Retrieval: the share of questions where every token of the answer is the most likely one.",
    ),
    "Cost": (
        "Memory is the highest use by the run's process so far: GPU memory if it uses a GPU. Speed, memory "
        "and seconds compare only on the same kind of machine. FLOPs are computed from the model's shape.",
    ),
    "Schemes": (
        "The effect of the trained scheme by itself, without the rest of the model.",
        "Bias: the number added to an attention logit at a distance, one line per head.",
        "Bound: an upper bound on the size of RoPE's rotated query-key product, 1 at distance 0. "
        "It does not show what a trained head does.",
        "Attention distance: how many tokens back a head attends on the validation text, weighted by its "
        "attention.",
    ),
    "Other measurements": (
        "Everything else that the study measures, one panel per line. The report page explains each.",
    ),
}


def reading(study: str) -> tuple[str, ...]:
    """Return how to read the panels, as items of a list."""
    return (
        "A line or a bar is an arm: a scheme under an attention, with any other settings that the study "
        "varies. It is the mean over the arm's seeds, with a band from the lowest to the highest seed; the "
        "band is not a confidence interval.",
        f"The runs are those of the study {study} that compare arms, including failed and diverged ones up "
        "to their last step. The report page leaves those two kinds out and lists each with its reason.",
        "Losses are mean negative log-likelihoods in nats per token; bits per byte compare between "
        "tokenizers. L is the training length. A line ends where its scheme is not defined. Lines are not "
        "smoothed.",
    )


def page(study: str) -> tuple[str, ...]:
    """Return the paragraphs that say where the study's report page is."""
    return (
        "The differences between arms, with intervals and tests, are in the study's report page: base your "
        f"claims on it. It is the artifact report-{study} of type report in this project, and "
        f"reports/{study}/index.html where the study was run. {typed('report')} study={study} writes it from "
        "the run records.",
    )
