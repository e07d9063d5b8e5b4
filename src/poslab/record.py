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

import csv
import errno
import hashlib
import io
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from poslab.config import ConfigError

FORMAT = 2
FULL = (errno.ENOSPC, errno.EDQUOT)  # the errors of a full disk
ROOM = 1.0  # seconds between two looks whether a full disk has room again
UNSEALED = "0" * 64
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


class DamagedError(ConfigError):
    """A file that is not as it was written; the message names it."""


def write_atomic(path: Path, content: str | bytes) -> None:
    """Replace `path` by `content` in one step that survives a crash: write beside, sync, rename, sync.

    On a full disk it says so and waits for room: what is there stays as it is, and nothing is lost.
    """
    data = content.encode() if isinstance(content, str) else content
    waited = False
    while True:
        try:
            _replace(path, data)
        except OSError as error:
            if error.errno not in FULL:
                raise
            if not waited:
                _say(f"the disk is full: {path} waits for room; Ctrl-C stops, and nothing is lost")
            waited = True
            time.sleep(ROOM)
        else:
            if waited:
                _say(f"the disk has room again: {path} is written")
            return


def _say(line: str) -> None:
    with suppress(OSError):  # where it goes to a file on the same disk
        print(f"poslab: {line}", file=sys.stderr, flush=True)


def _replace(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
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


def sealed(value: Mapping[str, Any]) -> str:
    """JSON that ends with the SHA-256 of all its bytes, for which zeros stand while it is taken."""
    text = json.dumps({**value, "sha256": UNSEALED}, indent=2, ensure_ascii=False) + "\n"
    digest = hashlib.sha256(text.encode()).hexdigest()
    head, _, tail = text.rpartition(UNSEALED)
    return f"{head}{digest}{tail}"


def write_sealed(path: Path, value: Mapping[str, Any]) -> None:
    """Write what `read_sealed` reads."""
    write_atomic(path, sealed(value))


def read_sealed(path: Path) -> dict[str, Any]:
    """The value of a `sealed` file. Raises FileNotFoundError, and DamagedError where a bit is not right."""
    return unsealed(path.read_bytes(), path)


def unsealed(data: bytes, path: Path) -> dict[str, Any]:
    """The value of a `sealed` text that is to be at `path`. Raises DamagedError."""
    found = re.search(rb'"sha256": "([0-9a-f]{64})"\n\}\n$', data)
    if found is not None:
        begin, end = found.span(1)
        if hashlib.sha256(data[:begin] + UNSEALED.encode() + data[end:]).hexdigest().encode() == found[1]:
            value: dict[str, Any] = json.loads(data)
            value.pop("sha256")
            return value
    raise DamagedError(f"{path} is damaged")


def write_table(path: Path, columns: Iterable[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """A CSV with a header; floats are written so that reading gives back the same bits. Its SHA-256."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomic(path, text.getvalue())
    return hashlib.sha256(text.getvalue().encode()).hexdigest()


class RunRecord:
    """The record of one run, written as the run goes on."""

    def __init__(self, directory: Path, manifest: Mapping[str, Any] | None = None) -> None:
        """`manifest` is what an earlier process wrote of the same run."""
        self.directory = directory
        self.manifest: dict[str, Any] = dict(manifest or {})
        self.files: dict[str, str] = {}

    def update(self, **fields: Any) -> None:
        self.manifest.update(fields)
        write_sealed(self.directory / "manifest.json", self.manifest)

    def ended(self, status: Status, reason: str | None, **fields: Any) -> dict[str, Any]:
        """The manifest of the closed record, whose files must from then on be as they are now."""
        return {**self.manifest, "status": status, "reason": reason, "files": self.files, **fields}

    def end(self, status: Status, reason: str | None, **fields: Any) -> None:
        """Close the record."""
        self.update(**self.ended(status, reason, **fields))

    def write_metrics(self, rows: Iterable[Mapping[str, Any]]) -> None:
        self._table("metrics.csv", METRICS, rows)

    def write_extrapolation(self, rows: Iterable[Mapping[str, Any]]) -> None:
        self._table("extrapolation.csv", EXTRAPOLATION, rows)

    def write_position(self, rows: Iterable[Mapping[str, Any]]) -> None:
        self._table("position.csv", POSITION, rows)

    def write_rescaled(
        self, lengths: Iterable[Mapping[str, Any]], positions: Iterable[Mapping[str, Any]]
    ) -> None:
        self._table("rescaled.csv", RESCALED, lengths)
        self._table("rescaled_position.csv", RESCALED_POSITION, positions)

    def write_probe(self, rows: Iterable[Mapping[str, Any]]) -> None:
        self._table("probe.csv", PROBE, rows)

    def write_scheme(
        self,
        bias: Iterable[Mapping[str, Any]],
        rotation: Iterable[Mapping[str, Any]],
        bound: Iterable[Mapping[str, Any]],
        distance: Iterable[Mapping[str, Any]],
    ) -> None:
        self._table("scheme_bias.csv", SCHEME_BIAS, bias)
        self._table("scheme_rotation.csv", SCHEME_ROTATION, rotation)
        self._table("scheme_bound.csv", SCHEME_BOUND, bound)
        self._table("attention_distance.csv", ATTENTION_DISTANCE, distance)

    def write_checkpoint(self, content: bytes) -> None:
        write_atomic(self.directory / FINAL, content)
        self.files[FINAL] = hashlib.sha256(content).hexdigest()

    def _table(self, name: str, columns: Iterable[str], rows: Iterable[Mapping[str, Any]]) -> None:
        self.files[name] = write_table(self.directory / name, columns, rows)


def read_manifest(directory: Path) -> dict[str, Any] | None:
    """The manifest of a run directory, None where there is none yet. Raises DamagedError, which names it."""
    path = directory / "manifest.json"
    try:
        return manifest_of(path.read_bytes(), path)
    except FileNotFoundError:
        return None


def manifest_of(data: bytes, path: Path) -> dict[str, Any]:
    """The manifest of a run from the bytes of its file, `path`. Raises DamagedError."""
    manifest = unsealed(data, path)
    if manifest.get("format") != FORMAT:
        raise DamagedError(f"{path} is not of format {FORMAT}")
    return manifest


def damaged_files(directory: Path, manifest: Mapping[str, Any], suffix: str = "") -> list[str]:
    """The files of an ended run that are not as they were written, of those that end in `suffix`."""
    names: Mapping[str, str] = manifest.get("files") or {}
    return [
        name
        for name, digest in names.items()
        if name.endswith(suffix) and _digest(directory / name) != digest
    ]


def _digest(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None
