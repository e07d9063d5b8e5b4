"""The record of one run, written during training."""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from poslab.record.facts import Manifest
from poslab.record.files import write_atomic, write_sealed, write_table
from poslab.record.schema import MANIFEST, Status, TableSchema


class RunRecord:
    """The manifest and the files of one run."""

    def __init__(self, directory: Path, manifest: Manifest | None = None) -> None:
        """Begin a record; `manifest` is from an earlier process of the same run."""
        self.directory = directory
        self.manifest = manifest or Manifest()
        self.files: dict[str, str] = {}  # the SHA-256 of the written files, by name

    def update(self, **fields: Any) -> None:
        """Set fields of the manifest and write it."""
        self.replace(self.manifest.updated(**fields))

    def replace(self, manifest: Manifest) -> None:
        """Replace the manifest and write it."""
        self.manifest = manifest
        write_sealed(self.directory / MANIFEST, manifest.as_json())

    def ended(self, status: Status, reason: str | None, **fields: Any) -> Manifest:
        """Return the manifest of the ended run, which lists its files; these must not change afterwards."""
        return self.manifest.updated(status=status, reason=reason, files=self.files, **fields)

    def write_table(self, schema: TableSchema, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write a CSV file of the run. Floats below a million have 7 digits, as in float32; others all."""
        columns = (*schema.columns, *schema.optional)
        rounded = ({key: _rounded(value) for key, value in row.items()} for row in rows)
        self.files[schema.file] = write_table(self.directory / schema.file, columns, rounded)

    def write_file(self, name: str, content: bytes | Callable[[BinaryIO], object]) -> None:
        """Write another file of the run atomically, with `write_atomic`."""
        self.files[name] = write_atomic(self.directory / name, content)


def _rounded(value: Any) -> Any:
    return float(f"{value:.7g}") if isinstance(value, float) and abs(value) < 1e6 else value


def now() -> str:
    """Return the current time in UTC in the format of records (ISO 8601)."""
    return datetime.now(UTC).isoformat(timespec="seconds")
