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
            NAME.csv           what the model is measured for besides: see NAME.py in poslab/measures
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

from typing import Any, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict

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
# rescale: pi | ntk | dynamic | yarn | drop
RESCALED = TableSchema("rescaled.csv", ("rescale", *EXTRAPOLATION.columns))
RESCALED_POSITION = TableSchema("rescaled_position.csv", ("rescale", *POSITION.columns))

# Beside the tables of measurements (poslab.measures).
RUN_FILES = frozenset({MANIFEST, FINAL, EXPORTED, TOKENIZER, ERROR, METRICS.file})


class Facts(BaseModel):
    """Facts on record. What other versions know besides is kept as it is; None: not on record."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    def updated(self, **fields: Any) -> Self:
        """The same with other values of some fields. Raises pydantic.ValidationError."""
        return type(self).model_validate({**self.as_json(), **fields})

    def as_json(self) -> dict[str, Any]:
        """The fields that are on record, as plain values in the order of this module."""
        return self.model_dump(exclude_unset=True)


class DataFacts(Facts):
    """The text that a run was trained on."""

    name: str | None = None
    fingerprint: str | None = None  # SHA-256 of its content and of how that is read
    content: str | None = None  # of its content alone, which is the fingerprint of older records
    vocabulary: int | None = None  # how many tokens there are to tell apart
    train_tokens: int | None = None
    validation_tokens: int | None = None
    documents: int | None = None

    def is_text_of(self, other: "DataFacts") -> bool:
        """Whether both are of the same text; one of them may be of an older version."""
        mine, others = ({facts.fingerprint, facts.content} - {None} for facts in (self, other))
        return bool(mine & others)


class WandbPlace(Facts):
    """Where a run is in W&B, and how much of it. At first only the `id` is known."""

    id: str | None = None
    mode: str | None = None  # online | offline
    url: str | None = None
    path: str | None = None  # of the offline files, from the run's directory
    project: str | None = None
    entity: str | None = None
    checkpoints: bool | None = None  # whether the weights go there too
    console: bool | None = None  # whether what it printed does
    because: str | None = None  # why it is offline although there is a login
    failed: str | None = None  # why W&B has not all of it
    complete: bool | None = None


class RunOrigin(Facts):
    """The finished run that a run goes on from, `from=RUN`."""

    study: str | None = None
    run: str | None = None
    identity: str | None = None
    checkpoint: str | None = None  # SHA-256 of its weights
    steps: int | None = None  # optimizer steps that the weights had had, of all runs before
    tokens: int | None = None  # trained in these
    context_length: int | None = None
    # Of the run's own validation windows before its first step.
    validation_nll: float | None = None
    validation_tokens: int | None = None


class SourceState(Facts):
    """The checkout that a run was made from."""

    commit: str | None = None
    modified: bool | None = None  # whether its src/ or conf/ differed from the commit


class Hardware(Facts):
    """The machine that a run was made on."""

    processor: str | None = None
    gpus: list[str] | None = None  # that it could use
    cores: int | None = None  # that it could use
    memory_bytes: int | None = None  # that it could use, swap included
    system: str | None = None


class Manifest(Facts):
    """What was run, on what, and how it ended."""

    format: int | None = None
    study: str | None = None
    run: str | None = None
    identity: str | None = None
    status: str | None = None
    reason: str | None = None
    pos: str | None = None
    attention: str | None = None
    seed: int | None = None
    config: dict[str, Any] | None = None  # what decides the result
    origin: RunOrigin | None = None  # what it goes on from; none: drawn weights
    code: str | None = None  # fingerprints: what every run trains by,
    code_parts: str | None = None  # the run's own scheme and attention,
    code_evaluation: str | None = None  # and what measures a trained model
    data: DataFacts | None = None
    versions: dict[str, str] | None = None
    source: SourceState | None = None  # none where poslab is installed, or there is no git
    hardware: Hardware | None = None
    device: str | None = None
    threads: int | None = None  # that PyTorch splits its sums by
    precision: str | None = None
    started: str | None = None  # ISO 8601
    finished: str | None = None
    notes: list[str] | None = None
    processes: int | None = None  # that have worked on it
    wandb: WandbPlace | None = None
    parameters: int | None = None
    max_length: int | None = None  # in tokens, past which the scheme has no value
    tokens: int | None = None  # trained
    flops: int | float | None = None
    seconds: int | float | None = None  # of training alone
    kernel: str | None = None
    seconds_validation: int | float | None = None
    batches: str | None = None  # SHA-256 over the training batches
    recalibration: str | None = None  # why there is no line of `drop`
    seconds_evaluation: int | float | None = None
    memory_bytes: int | None = None
    files: dict[str, str] | None = None  # the SHA-256 of each file of an ended run
    taken_from: str | None = None  # the study whose run this is a copy of

    # Of an evaluation of a trained model, made by evaluate.py.
    evaluation: str | None = None
    trained_identity: str | None = None
    checkpoint: str | None = None  # SHA-256 of the weights
    changed: dict[str, list[Any]] | None = None  # by dotted key: the run's value, and the evaluation's

    @property
    def corpus(self) -> DataFacts:
        """What is on record of the text."""
        return self.data or DataFacts()

    @property
    def tables(self) -> dict[str, str]:
        """The SHA-256 of each CSV file, by its name."""
        return {name: digest for name, digest in (self.files or {}).items() if name.endswith(TABLE_SUFFIX)}
