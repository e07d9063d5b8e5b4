"""The record of one run, written as the run goes on."""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from poslab.record.files import write_atomic, write_sealed, write_table
from poslab.record.schema import (
    ATTENTION_DISTANCE,
    EXTRAPOLATION,
    FINAL,
    MANIFEST,
    METRICS,
    POSITION,
    POSITION_PROBE,
    PROBE,
    RESCALED,
    RESCALED_POSITION,
    ROTATED_DENOMINATORS,
    SCHEME_BIAS,
    SCHEME_BOUND,
    SCHEME_ROTATION,
    TOKENIZER,
    Manifest,
    Status,
    TableSchema,
)

Rows = Iterable[Mapping[str, Any]]


class RunRecord:
    """The record of one run, written as the run goes on."""

    def __init__(self, directory: Path, manifest: Manifest | None = None) -> None:
        """`manifest` is what an earlier process wrote of the same run."""
        self.directory = directory
        self.manifest = manifest or Manifest()
        self.files: dict[str, str] = {}  # the SHA-256 of what was written, by name

    def update(self, **fields: Any) -> None:
        """Set fields of the manifest and write it."""
        self.replace(self.manifest.updated(**fields))

    def replace(self, manifest: Manifest) -> None:
        """Write another manifest in place of this one."""
        self.manifest = manifest
        write_sealed(self.directory / MANIFEST, manifest.as_json())

    def ended(self, status: Status, reason: str | None, **fields: Any) -> Manifest:
        """The manifest of the closed record, whose files must from then on be as they are now."""
        return self.manifest.updated(status=status, reason=reason, files=self.files, **fields)

    def end(self, status: Status, reason: str | None, **fields: Any) -> None:
        """Close the record."""
        self.replace(self.ended(status, reason, **fields))

    def write_metrics(self, rows: Rows) -> None:
        self._table(METRICS, rows)

    def write_extrapolation(self, rows: Rows) -> None:
        self._table(EXTRAPOLATION, rows)

    def write_position(self, rows: Rows) -> None:
        self._table(POSITION, rows)

    def write_rescaled(self, lengths: Rows, positions: Rows) -> None:
        self._table(RESCALED, lengths)
        self._table(RESCALED_POSITION, positions)

    def write_probe(self, rows: Rows) -> None:
        self._table(PROBE, rows)

    def write_scheme(
        self, bias: Rows, rotation: Rows, bound: Rows, distance: Rows, denominators: Rows, places: Rows
    ) -> None:
        self._table(SCHEME_BIAS, bias)
        self._table(SCHEME_ROTATION, rotation)
        self._table(SCHEME_BOUND, bound)
        self._table(ATTENTION_DISTANCE, distance)
        if denominators:  # few runs have any
            self._table(ROTATED_DENOMINATORS, denominators)
        self._table(POSITION_PROBE, places)

    def write_checkpoint(self, content: bytes) -> None:
        self._file(FINAL, content)

    def write_tokenizer(self, content: bytes) -> None:
        self._file(TOKENIZER, content)

    def _file(self, name: str, content: bytes) -> None:
        write_atomic(self.directory / name, content)
        self.files[name] = hashlib.sha256(content).hexdigest()

    def _table(self, schema: TableSchema, rows: Rows) -> None:
        self.files[schema.file] = write_table(
            self.directory / schema.file, (*schema.columns, *schema.optional), rows
        )
