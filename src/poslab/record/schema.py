"""The run record: one directory a run, the only source of every reported number.

    runs/<study>/<run>/
        manifest.json      what was run, on what, how it ended
        metrics.csv        a row a validation: sums of losses, rates, gradient norm
        extrapolation.csv  a row a protocol, length and segment: sums of losses
        position.csv       a row a position in the longest window: sums of losses
        probe.csv          a row a task, length and depth: answers retrieved (probe=...)
        scheme_bias.csv    what the trained scheme adds to logits, by distance and head
        scheme_rotation.csv, scheme_bound.csv
                           tokens in which each pair turns once, and RoPE's bound of decay
        attention_distance.csv
                           how far back each head attends on the validation text
        rescaled.csv       extrapolation.csv of the trained model under other rotations (evaluate.rescale)
        rescaled_position.csv
        probe.csv          a row a task, length and depth: what the trained model retrieves, where asked for
        scheme_bias.csv, scheme_rotation.csv, scheme_bound.csv
                           what the trained scheme adds to a logit, and how it turns a query or key
        attention_distance.csv  a row a layer and head: how far back the trained model attends
        checkpoint.pt      final weights
        checkpoints/       while it trains: the last two states that it can go on from
        progress.json      while it trains: how far it is
        log.txt            what its processes printed

Losses are sums of token negative log-likelihoods in nats beside their token (and byte) counts, never
averages. Every file is written beside its place, synced and renamed, so that a reader never sees half of one;
the manifest of an ended run holds the SHA-256 of its files, and one of itself.
"""

from typing import Literal

FORMAT = 2
FINAL = "checkpoint.pt"

Status = Literal["running", "done", "failed", "diverged", "interrupted"]

METRICS = (
    "step",  # optimizer steps done
    "tokens",  # training tokens seen
    "seconds",  # training alone: without validation, evaluation and start
    "train_nll",  # summed over the tokens trained since the row before
    "train_tokens",
    "validation_nll",
    "validation_tokens",
    "validation_bytes",
    "learning_rate",
    "gradient_norm",  # before clipping, mean since the row before
    "tokens_per_second",
)
EXTRAPOLATION = (
    "protocol",  # non_overlapping | sliding | matched: non-overlapping, on the targets that sliding scores
    "multiple",  # of the training length L
    "length",
    "segment",  # which stretch of validation text; the same number is the same target tokens everywhere
    "nll",
    "tokens",
    "bytes",
)
POSITION = ("position", "nll", "tokens", "bytes")
PROBE = (
    "task",  # passkey | copy
    "multiple",
    "length",
    "depth",  # of the statement in the window: 0 at its start, 1 right before the question
    "samples",
    "exact",  # samples whose every answer token was the most likely one
    "correct",  # answer tokens that were
    "nll",  # of the answer tokens
    "tokens",  # of the answers
)
SCHEME_BIAS = ("layer", "head", "distance", "bias")  # added to a logit; layers that share a scheme once
SCHEME_ROTATION = ("layer", "pair", "wavelength")  # tokens a turn; empty where the pair does not turn
SCHEME_BOUND = ("layer", "distance", "bound")  # RoPE's upper bound of decay, 1 at distance 0
ATTENTION_DISTANCE = ("layer", "head", "queries", "distance")  # tokens, summed over the queries
RESCALED = ("rescale", *EXTRAPOLATION)  # rescale: pi | ntk | dynamic | yarn | drop
RESCALED_POSITION = ("rescale", *POSITION)
