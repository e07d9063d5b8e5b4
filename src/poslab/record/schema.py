"""What a run leaves on disk: its files with their columns, and the facts in its manifest.

    runs/<study>/
        study.json         the runs that were asked for, the question, the reference arm and the commands
        <run>/
            manifest.json      what was run, on what, how it ended
            metrics.csv        a row a validation: sums of losses, rates, gradient norm
            extrapolation.csv  a row a protocol, length and segment: sums of losses
            position.csv       a row a position in windows of the longest length: sums of losses
            rescaled.csv       extrapolation.csv of the trained model under other rotations (evaluate.rescale)
            rescaled_position.csv
            probe.csv          a row a task, length and depth: what the model retrieves, where asked for
            scheme_bias.csv    what the trained scheme adds to a logit, by layer, head and distance
            scheme_rotation.csv, scheme_bound.csv
                               tokens in which each pair turns once, and RoPE's bound of decay
            attention_distance.csv
                               a row a layer and head: how far back the trained model attends
            rotated_denominators.csv
                               a row a layer and head of linear attention under a rotation: what its
                               weights would be divided by, had the denominator been rotated too
            position_probe.csv a row a layer: how well a linear probe reads a token's position from its state
            checkpoint.pt      final weights
            tokenizer.json     what cut the text into its tokens, unless these are bytes
            checkpoints/       while it trains: the last two states that it can go on from
            progress.json      while it trains: how far it is
            log.txt            what its processes printed
            error.txt          the traceback of a run that failed

Losses are sums of token negative log-likelihoods in nats beside their token (and byte) counts, never
averages. Every file is written beside its place, synced and renamed, so that a reader never sees half of one;
the manifest of an ended run holds the SHA-256 of its files, and one of itself. Only files that it lists are
read.
"""

from typing import Literal, NamedTuple

FORMAT = 3  # of the records that this version writes and reads

MANIFEST = "manifest.json"
STUDY_LIST = "study.json"
FINAL = "checkpoint.pt"
EXPORTED = "model.safetensors"
TOKENIZER = "tokenizer.json"
CHECKPOINTS = "checkpoints"
PROGRESS = "progress.json"
LOG = "log.txt"
ERROR = "error.txt"
TABLE_SUFFIX = ".csv"

Status = Literal["running", "done", "failed", "diverged", "interrupted"]
ENDED: tuple[Status, ...] = ("done", "diverged")  # making such a run again would give the same again


class TableSchema(NamedTuple):
    """A CSV file of a run: the columns that it must have, and those that older records lack.

    A column that an existing table gains is optional: where it is lacking, its cells are read as empty.
    """

    file: str
    columns: tuple[str, ...]
    optional: tuple[str, ...] = ()


METRICS = TableSchema(
    "metrics.csv",
    (
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
    ),
)
EXTRAPOLATION = TableSchema(
    "extrapolation.csv",
    (
        "protocol",  # non_overlapping | sliding | matched: non-overlapping, on the targets of sliding
        "multiple",  # of the training length L
        "length",
        "segment",  # which stretch of validation text; the same number is the same target tokens everywhere
        "nll",
        "tokens",
        "bytes",
    ),
)
POSITION = TableSchema("position.csv", ("position", "nll", "tokens", "bytes"))
PROBE = TableSchema(
    "probe.csv",
    (
        "task",  # passkey | copy
        "multiple",
        "length",
        "depth",  # of the statement in the window: 0 at its start, 1 right before the question
        "samples",
        "exact",  # samples whose every answer token was the most likely one
        "correct",  # answer tokens that were
        "nll",  # of the answer tokens
        "tokens",  # of the answers
    ),
)
# What the scheme adds to a logit; layers that share a scheme stand there once.
SCHEME_BIAS = TableSchema("scheme_bias.csv", ("layer", "head", "distance", "bias"))
# In tokens a turn; empty where the pair does not turn.
SCHEME_ROTATION = TableSchema("scheme_rotation.csv", ("layer", "pair", "wavelength"))
# RoPE's upper bound of decay, 1 at distance 0.
SCHEME_BOUND = TableSchema("scheme_bound.csv", ("layer", "distance", "bound"))
# In tokens, summed over the queries.
ATTENTION_DISTANCE = TableSchema("attention_distance.csv", ("layer", "head", "queries", "distance"))
# Over validation windows of length L: each query's sum of weights, whose numerator alone is rotated.
ROTATED_DENOMINATORS = TableSchema(
    "rotated_denominators.csv",
    (
        "layer",
        "head",
        "queries",
        "vanished",  # queries whose rotated denominator is at or below 0
        "lowest",  # rotated denominator over the plain one
        "weights",  # pairs of a query and a key up to it
        "negative",  # weights below 0
    ),
)
# Sums over the tokens of the validation windows that the probe was not fitted on; positions in tokens.
POSITION_PROBE = TableSchema("position_probe.csv", ("layer", "tokens", "squared_error", "squared_deviation"))
# rescale: pi | ntk | dynamic | yarn | drop
RESCALED = TableSchema("rescaled.csv", ("rescale", *EXTRAPOLATION.columns))
RESCALED_POSITION = TableSchema("rescaled_position.csv", ("rescale", *POSITION.columns))

TABLES = (
    METRICS,
    EXTRAPOLATION,
    POSITION,
    PROBE,
    SCHEME_BIAS,
    SCHEME_ROTATION,
    SCHEME_BOUND,
    ATTENTION_DISTANCE,
    ROTATED_DENOMINATORS,
    POSITION_PROBE,
    RESCALED,
    RESCALED_POSITION,
)
RUN_FILES = frozenset({MANIFEST, FINAL, EXPORTED, TOKENIZER, ERROR, *(table.file for table in TABLES)})
