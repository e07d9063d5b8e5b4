"""What the W&B Report of a study says: how to read it, and what the figures of each section are."""

from poslab.config.installation import typed
from poslab.tracking.dashboard.contents import Contents

NO_QUESTION = "None is on record: question=... with the training command says what a study is to answer."


def reading(study: str) -> tuple[str, ...]:
    """How to read all of the panels; an item each."""
    return (
        "A line or a bar is an arm: a scheme under an attention, and whatever else the study changes. It "
        "is the mean over the arm's seeds; the band reaches from the lowest seed to the highest. It is no "
        "confidence interval, and with one seed there is none.",
        f"The runs are those of the study {study} with the job type train that compare arms; trials of a "
        "learning rate are left out.",
        "Every run of the arm counts as far as it got: one that still runs, failed or diverged, and both "
        "of two runs of one seed that were made with different code or data. The report page leaves such "
        "runs out and lists each with its reason.",
        "Losses are means of the negative log-likelihood, in nats a token; bits per byte are nats a byte "
        "over ln 2, and compare between tokenizers. L is the training length. A line ends where its scheme "
        "is not defined, such as a learned embedding past L.",
        "Lines are not smoothed. A logarithmic axis is to base 10, since W&B has no other, and leaves out 0.",
    )


def page(study: str) -> tuple[str, ...]:
    """Where the study's report page lies."""
    return (
        "What the arms differ by, paired by seed, with Student-t intervals, corrected for the number of "
        "arms, and a CSV cell for every number, is in the study's report page. Take what you claim from "
        "there.",
        f"It is the artifact report-{study} of type report in this project (index.html opens from disk, "
        f"without a network), and reports/{study}/index.html where the study was made. To make it from the "
        f"run records alone: {typed('report')} study={study}",
    )


def section(name: str, contents: Contents) -> tuple[str, ...]:
    """What the figures of a section are, an item each: definitions and units."""
    return {
        "Convergence": _convergence,
        "Extrapolation": _extrapolation,
        "Cost": _cost,
        "Schemes": _schemes,
    }[name](contents)


def _convergence(contents: Contents) -> tuple[str, ...]:
    return (
        "Validation loss: on held-out text, in windows of L tokens, at evenly spaced points of the training. "
        "Training loss: the mean since the point before.",
        "Tokens are those trained on. Seconds are those of training alone, without validation, evaluation "
        "and start; they compare on one kind of machine only, and seeds lie at different seconds, so that "
        "the mean is over whichever seeds have a point there.",
        "The gradient's norm is the mean since the point before, before clipping. Every arm has the same "
        "budget, learning rate and schedule, unless the study changes them or tunes the rate for each.",
    )


def _extrapolation(contents: Contents) -> tuple[str, ...]:
    items = [
        "All lengths score the same target tokens, with no attention across documents where the data has "
        "documents. Non-overlapping windows of length l score every token. Sliding windows of length l "
        "move by L/8 and score their last L/8 tokens; of all such windows an even sample is taken.",
        "Context gain at l: sliding loss at L less sliding loss at l, what a longer context is really worth. "
        "Below 0 the longer context hurts. Early-token curse at l: non-overlapping loss less sliding loss on "
        "the same targets. Most of a falling non-overlapping loss is the curse going away.",
        "Loss by position: the mean loss at each position of the longest windows, in bins four an octave.",
    ]
    if contents.longest is not None:
        items.append(
            "Usable length: the largest tested length up to which the sliding loss stays within 5 % (1 %) of "
            "its value at L; the longest length that was tested stands for at least so much. The bar is the "
            "worst seed's, the band reaches to the best's. It is held against each run's own loss; the "
            "report page has beside it how far an arm stays below one loss for the whole study."
        )
    if contents.failed:
        items.append(
            "Failure position: the first position past L whose bin loses more than 5 % over the mean of "
            "L/2 to L. The bar is the first of any seed; seeds and arms that do not fail have none and do "
            "not show."
        )
    if contents.rescaled:
        items.append(
            "Changed rotation: the trained model evaluated anew with its frequencies changed, without "
            f"training again ({', '.join(contents.rescaled)}), over the same windows as the non-overlapping "
            "loss."
        )
    if contents.retrieval:
        items.append(
            "Retrieval: the share of questions whose every answer token was the most likely one, by the "
            "depth at which the statement stands in a window of so many times L."
        )
    return tuple(items)


def _cost(contents: Contents) -> tuple[str, ...]:
    loss = "the sliding loss at L" if contents.multiples else "the last validation loss"
    return (
        "Speed is in tokens trained a second. Memory is the most that the run's process has held so far: of "
        "its GPU where it uses one, else of the machine. Seconds are those of training alone. All three "
        "compare on one kind of machine only.",
        "FLOPs are those of the whole training, counted from the model's shape. Parameters are all that are "
        "trained, the scheme's own among them.",
        f"The scatter and the parallel axes show {loss} beside what it cost.",
    )


def _schemes(contents: Contents) -> tuple[str, ...]:
    items = []
    if contents.bias:
        items.append(
            "Bias: what the trained scheme adds to an attention logit at a distance, a line a head; layers "
            "that share one scheme show once, and arms whose scheme adds nothing do not show."
        )
    if contents.bound:
        items.append(
            "Bound: an upper bound of the size of RoPE's rotated product of a query and a key at a "
            "distance, 1 at distance 0. It does not say what a trained head does."
        )
    if contents.attended:
        items.append(
            "Attention distance: how many tokens back a head attends on the validation text, weighted by its "
            "attention, as the mean of a layer's heads, the nearest head and the farthest."
        )
    return tuple(items)
