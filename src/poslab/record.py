"""The run record: one directory a run, the only source of every reported number.

    runs/<study>/<run>/
        manifest.json      what was run, on what, how it ended
        metrics.csv        a row a validation: sums of losses, rates, gradient norm
        extrapolation.csv  a row a protocol, length and segment: sums of losses
        position.csv       a row a position in the longest window: sums of losses
        rescaled.csv       extrapolation.csv of the trained model under other rotations (evaluate.rescale)
        rescaled_position.csv
        checkpoint.pt      final weights

Losses are sums of token negative log-likelihoods in nats beside their token (and byte) counts, never
averages. Every file is written beside its place, synced and renamed, so that a reader never sees half of one.
"""

import csv
import io
import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from poslab.config import ConfigError

FORMAT = 1

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
RESCALED = ("rescale", *EXTRAPOLATION)  # rescale: pi | ntk | dynamic | yarn | drop
RESCALED_POSITION = ("rescale", *POSITION)


def write_atomic(path: Path, content: str | bytes) -> None:
    """Replace `path` by `content` in one step that survives a crash: write beside, sync, rename, sync."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode() if isinstance(content, str) else content
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    write_atomic(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def write_table(path: Path, columns: Iterable[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """A CSV with a header; floats are written so that reading gives back the same bits."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomic(path, text.getvalue())


class RunRecord:
    """The record of one run, written as the run goes on."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.manifest: dict[str, Any] = {}

    def update(self, **fields: Any) -> None:
        self.manifest.update(fields)
        write_json(self.directory / "manifest.json", self.manifest)

    def write_metrics(self, rows: Iterable[Mapping[str, Any]]) -> None:
        write_table(self.directory / "metrics.csv", METRICS, rows)

    def write_extrapolation(self, rows: Iterable[Mapping[str, Any]]) -> None:
        write_table(self.directory / "extrapolation.csv", EXTRAPOLATION, rows)

    def write_position(self, rows: Iterable[Mapping[str, Any]]) -> None:
        write_table(self.directory / "position.csv", POSITION, rows)

    def write_rescaled(
        self, lengths: Iterable[Mapping[str, Any]], positions: Iterable[Mapping[str, Any]]
    ) -> None:
        write_table(self.directory / "rescaled.csv", RESCALED, lengths)
        write_table(self.directory / "rescaled_position.csv", RESCALED_POSITION, positions)


def read_manifest(directory: Path) -> dict[str, Any] | None:
    """The manifest of a run directory, None where there is none yet. Raises ConfigError on a damaged one."""
    try:
        manifest = json.loads((directory / "manifest.json").read_text())
    except FileNotFoundError:
        return None
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise ConfigError(f"{directory / 'manifest.json'} is damaged; remove the directory") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ConfigError(f"{directory / 'manifest.json'} is not of format {FORMAT}; remove the directory")
    return manifest
