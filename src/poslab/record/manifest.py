"""The manifest of a run directory, and checks of the files that it lists."""

import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import TypeAdapter, ValidationError

from poslab.config.text import is_file_name, plain
from poslab.record.facts import Manifest
from poslab.record.schema import FORMAT, MANIFEST, TABLE_SUFFIX
from poslab.record.seal import DamagedError, UnreadableError, unsealed

Kind = TypeVar("Kind")


class OtherFormatError(UnreadableError):
    """Error raised for an intact record from an older or newer version."""

    def __init__(self, name: object, number: int) -> None:
        """Compose the message; `name` is the manifest's name in it."""
        older = number < FORMAT
        self.age: Literal["older", "newer"] = "older" if older else "newer"
        self.found = f"{name} has format {number}, from {'an older' if older else 'a newer'} version"
        advice = "train it again" if older else "use the version of poslab that wrote it"
        self.reason = f"its record has format {number}, which this version does not read: {advice}"
        super().__init__(f"{name}: {self.reason}")


def read_manifest(directory: Path, anywhere: bool = False) -> Manifest | None:
    """Read the manifest of a run directory; None if there is none yet.

    Raise UnreadableError. Without `anywhere`, raise it also if the record belongs to another directory.
    """
    path = directory / MANIFEST
    try:
        manifest = parse_manifest(path.read_bytes(), path)
    except FileNotFoundError:
        return None
    if not anywhere:
        check_directory(manifest, directory, path)
    return manifest


def check_directory(manifest: Manifest, directory: Path, name: object = MANIFEST) -> None:
    """Raise DamagedError if a record belongs to a run other than its directory's.

    An intact record may be in the wrong place: copied, moved or restored there by mistake.
    """
    folder = Path(os.path.abspath(directory)).name
    recorded = manifest.run if manifest.evaluation is None else manifest.evaluation
    if recorded is not None and recorded != folder:
        run = f"{plain(recorded, 120)} (move it to a folder of that name)"
        raise DamagedError(f"{name} is the record of {run}, not of this run")
    identity = manifest.identity
    if manifest.evaluation is None and identity is not None and not folder.endswith(identity):
        raise DamagedError(f"{name} has the identity {plain(manifest.identity, 40)}, not that of this run")


def parse_manifest(data: bytes, name: object = MANIFEST) -> Manifest:
    """Parse a run's manifest from the bytes of its file, as `parse_record` does."""
    return parse_record(Manifest, data, name, range(FORMAT, FORMAT + 1))


def parse_record(kind: type[Kind], data: bytes, name: object, formats: range) -> Kind:
    """Parse a sealed file from its bytes as `kind`; `name` is its name in messages.

    Raise DamagedError, and OtherFormatError for an intact file in a format that this version does not read.
    The earliest files have no format number.
    """
    facts = unsealed(data, name)
    number = facts.get("format", 1)
    if type(number) is not int:
        raise DamagedError(f"{name} has no valid format")
    if number not in formats:
        raise OtherFormatError(name, number)
    try:
        return TypeAdapter(kind).validate_python(facts)
    except ValidationError as error:
        field = ".".join(map(str, error.errors()[0]["loc"]))
        raise DamagedError(f"{name} has no valid {plain(field, 80)}") from None


def remove_record(directory: Path) -> None:
    """Remove a manifest with its tables, and their folder if it is then empty; do nothing through a link."""
    if directory.is_symlink() or not (directory / MANIFEST).is_file():
        return
    for path in directory.glob(f"*{TABLE_SUFFIX}"):
        if path.is_file() and not path.is_symlink() and is_file_name(path.name):
            path.unlink(missing_ok=True)
    (directory / MANIFEST).unlink(missing_ok=True)
    with suppress(OSError):
        directory.rmdir()


def damaged_files(directory: Path, files: Mapping[str, str] | None) -> list[str]:
    """Return the names of missing or changed files; `files` has the SHA-256 in a manifest, by name."""
    return [name for name, digest in (files or {}).items() if _digest(directory / name) != digest]


def _digest(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None
