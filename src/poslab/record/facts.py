"""The facts in a run's manifest: its settings, its data, its machine and how it ended."""

import json
from functools import lru_cache
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict

from poslab.record.schema import TABLE_SUFFIX

# Lists of fingerprints of code, the oldest first. Under all fingerprints of a list, every arm trained to the
# same losses, or all measurements of the same models had the same results (tests/golden writes them).
RECIPES = Path(__file__).with_name("recipes.json")
SHARED_STEPS = "steps 1 to"  # the beginning of a run's note if its first steps are another run's

Fingerprint = TypeVar("Fingerprint", str, str | None)


class Facts(BaseModel):
    """Facts on record; None: not on record. Unknown fields from other versions are preserved."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    def updated(self, **fields: Any) -> Self:
        """Return a copy with other values of some fields. Raise pydantic.ValidationError."""
        return type(self).model_validate({**self.as_json(), **fields})

    def as_json(self) -> dict[str, Any]:
        """Return the fields on record, as plain values in the order of this module."""
        return self.model_dump(exclude_unset=True)


class DataFacts(Facts):
    """The text that a run was trained on."""

    name: str | None = None
    fingerprint: str | None = None  # SHA-256 of its content and of the settings that read it
    vocabulary: int | None = None  # the number of different tokens
    train_tokens: int | None = None
    validation_tokens: int | None = None
    documents: int | None = None


class WandbPlace(Facts):
    """The place of a run in W&B, and how much of it was sent. Initially only the `id` is known."""

    id: str | None = None
    mode: str | None = None  # online | offline
    url: str | None = None
    path: str | None = None  # the offline files, relative to the run's directory
    project: str | None = None
    entity: str | None = None
    checkpoints: bool | None = None  # whether the weights are sent
    console: bool | None = None  # whether the run's output is sent
    because: str | None = None  # why it is offline despite a login
    failed: str | None = None  # why the run in W&B is incomplete
    complete: bool | None = None


class RunOrigin(Facts):
    """The finished run that a run begins from, `from=RUN`."""

    study: str | None = None
    run: str | None = None
    identity: str | None = None
    checkpoint: str | None = None  # SHA-256 of its weights
    steps: int | None = None  # optimizer steps that led to the weights, over all earlier runs
    tokens: int | None = None  # training tokens in these steps
    context_length: int | None = None
    # Loss on the run's own validation windows before its first step.
    validation_nll: float | None = None
    validation_tokens: int | None = None


class SourceState(Facts):
    """The checkout that a run used."""

    commit: str | None = None
    modified: bool | None = None  # whether its src/ or conf/ differed from the commit


class Hardware(Facts):
    """The part of its machine that a run could use."""

    processor: str | None = None
    gpus: list[str] | None = None
    cores: int | None = None
    memory_bytes: int | None = None  # including swap
    system: str | None = None


class Manifest(Facts):
    """The settings of a run, its machine and how it ended."""

    format: int | None = None
    study: str | None = None
    run: str | None = None
    identity: str | None = None
    status: str | None = None
    reason: str | None = None
    pos: str | None = None
    attention: str | None = None
    seed: int | None = None
    config: dict[str, Any] | None = None  # the settings that decide the result
    origin: RunOrigin | None = None  # the run that it begins from; None: random initial weights
    code: str | None = None  # fingerprint of the training code that all runs share
    code_parts: str | None = None  # fingerprint of the run's scheme and attention
    code_evaluation: str | None = None  # fingerprint of the evaluation code
    data: DataFacts | None = None
    versions: dict[str, str] | None = None
    source: SourceState | None = None  # None if poslab is an installed package, or there is no git
    hardware: Hardware | None = None
    device: str | None = None
    threads: int | None = None  # of PyTorch: the last bits of sums depend on them
    precision: str | None = None
    started: str | None = None  # ISO 8601
    finished: str | None = None
    notes: list[str] | None = None
    processes: int | None = None  # the number of processes that have trained it
    wandb: WandbPlace | None = None
    parameters: int | None = None
    max_length: int | None = None  # in tokens; past it the scheme is not defined
    untrained_from: int | None = None  # the first distance in tokens with parameters that training never read
    tokens: int | None = None  # training tokens
    flops: int | float | None = None
    seconds: int | float | None = None  # training only
    kernel: str | None = None
    seconds_validation: int | float | None = None
    batches: str | None = None  # SHA-256 of the training batches
    recalibration: str | None = None  # why `drop` was not measured
    seconds_evaluation: int | float | None = None
    memory_bytes: int | None = None
    files: dict[str, str] | None = None  # the SHA-256 of each file of an ended run
    taken_from: str | None = None  # the study that this run was copied from

    # Only for a later evaluation of a trained model.
    evaluation: str | None = None
    trained_identity: str | None = None
    checkpoint: str | None = None  # SHA-256 of the weights
    changed: dict[str, list[Any]] | None = None  # by dotted key: the run's value and the evaluation's

    @property
    def corpus(self) -> DataFacts:
        """The facts about the text; empty if there are none."""
        return self.data or DataFacts()

    @property
    def tables(self) -> dict[str, str]:
        """The SHA-256 of each CSV file, by its name."""
        return {name: digest for name, digest in (self.files or {}).items() if name.endswith(TABLE_SUFFIX)}


def recipe(fingerprint: Fingerprint) -> Fingerprint:
    """Return the oldest fingerprint of code known to have the same results, or the fingerprint itself."""
    return next((equivalent[0] for equivalent in _recipes() if fingerprint in equivalent), fingerprint)


@lru_cache
def _recipes() -> list[list[str]]:
    return [*json.loads(RECIPES.read_text()).values()]
