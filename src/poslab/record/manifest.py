"""The manifest of a run directory, and whether the files that it lists are as they were written."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from poslab.record.files import DamagedError, unsealed
from poslab.record.schema import FORMAT


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
