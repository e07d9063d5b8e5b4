"""What a run leaves on disk: its files with their columns, and the facts in its manifest.

    runs/<study>/
        study.json         the runs that were asked for, the question, the reference arm and the commands
        <run>/
            manifest.json      what was run, on what, how it ended
            metrics.csv        a row per validation: sums of losses, rates, gradient norm
            NAME.csv           the table of a measurement (poslab.measures.NAME), where the run has it
            checkpoint.pt      final weights
            tokenizer.json     what cut the text into its tokens, unless these are bytes
            checkpoints/       while it trains: the last two states to resume from
            stable-<hash>/     with branches=true: the state before the decay, for longer runs
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
        "seconds",  # only training: without validation, evaluation and start
        "train_nll",  # summed over the tokens trained since the row before
        "train_tokens",
        "validation_nll",
        "validation_tokens",
        "validation_bytes",
        "learning_rate",  # of the step that follows
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
    ("document",),  # of the validation text that the segment lies in
)
POSITION = TableSchema("position.csv", ("position", "nll", "tokens", "bytes"))
# rescale: pi | ntk | dynamic | yarn | drop
RESCALED = TableSchema("rescaled.csv", ("rescale", *EXTRAPOLATION.columns), EXTRAPOLATION.optional)
RESCALED_POSITION = TableSchema("rescaled_position.csv", ("rescale", *POSITION.columns))

# Beside the tables of measurements (poslab.measures).
RUN_FILES = frozenset({MANIFEST, FINAL, EXPORTED, TOKENIZER, ERROR, METRICS.file})
