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
    METRICS,
    POSITION,
    PROBE,
    RESCALED,
    RESCALED_POSITION,
    SCHEME_BIAS,
    SCHEME_BOUND,
    SCHEME_ROTATION,
    Status,
)


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
