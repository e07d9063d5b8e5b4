"""The files of a run and their columns.

    runs/<study>/
        study.json         the requested runs, the question, the reference arm and the commands
        <run>/
            manifest.json      the settings, the data, the machine, and how it ended
            metrics.csv        one row per validation: sums of losses, rates, gradient norm
            NAME.csv           the table of a measurement (poslab.measures.NAME), if the run has it
            checkpoint.pt      final weights
            tokenizer.json     the tokenizer, unless tokens are bytes
            checkpoints/       during training: the last two states to resume from
            stable-<hash>/     with branches=true: the state before the decay, for longer runs
            progress.json      during training: its progress
            log.txt            the output of its processes
            error.txt          the traceback of a run that failed

Losses are sums of token negative log-likelihoods in nats beside their token (and byte) counts, never
averages. Every file is written under a temporary name, synced and renamed, so that a reader never sees a
partial file. The manifest of an ended run has the SHA-256 of its files, and one of itself. Only files that it
lists are read.
"""

from typing import Literal, NamedTuple

FORMAT = 3  # the format of records that this version writes and reads

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
ENDED: tuple[Status, ...] = ("done", "diverged")  # running it again would give the same result


class TableSchema(NamedTuple):
    """A CSV file of a run: its required columns, and its optional ones, which older records lack.

    A column that is added to an existing table is optional: if it is absent, its cells are read as empty.
    """

    file: str
    columns: tuple[str, ...]
    optional: tuple[str, ...] = ()


METRICS = TableSchema(
    "metrics.csv",
    (
        "step",  # optimizer steps done
        "tokens",  # training tokens seen
        "seconds",  # training only, without validation, evaluation and startup
        "train_nll",  # summed over the tokens trained since the previous row
        "train_tokens",
        "validation_nll",
        "validation_tokens",
        "validation_bytes",
        "learning_rate",  # of the next step
        "gradient_norm",  # before clipping, mean since the previous row
        "tokens_per_second",
    ),
)
EXTRAPOLATION = TableSchema(
    "extrapolation.csv",
    (
        "protocol",  # non_overlapping | sliding | matched (non-overlapping, on the targets of sliding)
        "multiple",  # of the training length L
        "length",
        "segment",  # the part of the validation text; a number means the same targets everywhere
        "nll",
        "tokens",
        "bytes",
    ),
    ("document",),  # the validation document that contains the segment
)
POSITION = TableSchema("position.csv", ("position", "nll", "tokens", "bytes"))
# rescale: pi | ntk | dynamic | yarn | drop
RESCALED = TableSchema("rescaled.csv", ("rescale", *EXTRAPOLATION.columns), EXTRAPOLATION.optional)
RESCALED_POSITION = TableSchema("rescaled_position.csv", ("rescale", *POSITION.columns))

# In addition to the tables of measurements (poslab.measures).
RUN_FILES = frozenset({MANIFEST, FINAL, EXPORTED, TOKENIZER, ERROR, METRICS.file})
