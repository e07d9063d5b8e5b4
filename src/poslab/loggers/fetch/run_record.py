"""The record of one run in W&B: listed, verified, and downloaded into a run directory in the cache.

Names and contents are not trusted: only files with the right seal and checksum are used, and no name may lead
out of its folder.
"""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from poslab.config.text import is_file_name
from poslab.loggers.fetch.account import asking, http_status
from poslab.record.facts import Manifest
from poslab.record.files import write_atomic
from poslab.record.manifest import OtherFormatError, damaged_files, parse_manifest
from poslab.record.schema import ENDED, MANIFEST, TABLE_SUFFIX
from poslab.record.seal import DamagedError

PREFIX = "record/"  # the record's folder among a run's files in W&B


@dataclass(frozen=True)
class RemoteRecord:
    """A run's record in W&B, with a valid seal. `files` has its files by their names in its directory."""

    run: Any  # from wandb.Api
    title: str
    files: Mapping[str, Any]
    content: bytes  # the manifest's bytes
    manifest: Manifest

    @property
    def name(self) -> str:
        """The name of its directory."""
        return str(self.manifest.run)


def record_files(run: Any) -> dict[str, Any]:
    """Return the files of a run's record in W&B by name, without downloading any."""
    with asking(f"the files of {run.id}"):
        files = {str(file.name): file for file in run.files(per_page=500)}
    return {name.removeprefix(PREFIX): file for name, file in files.items() if name.startswith(PREFIX)}


def read_record(
    run: Any, study: str | None, title: str = "", files: Mapping[str, Any] | None = None
) -> RemoteRecord | str:
    """Read the record of a run of `study` in W&B; return a line of text if it is unusable.

    `files` are the files of the record, listed from the run by default.
    """
    title = title or f"{run.name} ({run.id})"
    files = record_files(run) if files is None else files
    content = download(files.get(MANIFEST))
    if content is None:
        return f"{title} has no record: {run.state} in W&B"
    try:
        manifest = parse_manifest(content)
    except OtherFormatError as error:
        return f"{title} cannot be read: {error.reason}"
    except DamagedError:
        return f"{title} has a damaged {MANIFEST}"
    if study is not None and manifest.study != study:
        return f"{title} names the study {str(manifest.study)[:60]!r}"
    if not all(map(is_file_name, (manifest.study, manifest.run, *(manifest.files or {})))):
        return f"{title} names a file outside its folder"
    return RemoteRecord(run, title, files, content, manifest)


def download_record(remote: RemoteRecord, directory: Path) -> list[str]:
    """Make `directory` equal to W&B's record; return a line for each bad table.

    A report lists runs with missing or damaged tables.
    """
    tables = remote.manifest.tables if remote.manifest.status in ENDED else {}
    for name in damaged_files(directory, tables):
        (directory / name).unlink(missing_ok=True)
        if (content := download(remote.files.get(name))) is not None:
            write_atomic(directory / name, content)
    write_atomic(directory / MANIFEST, remote.content)
    for path in directory.glob(f"*{TABLE_SUFFIX}"):
        if path.name not in tables:  # from another state of the run
            path.unlink()
    return [
        f"{remote.title}: {name} is {'damaged' if (directory / name).exists() else 'missing'} in W&B"
        for name in damaged_files(directory, tables)
    ]


def download(file: Any | None) -> bytes | None:
    """Return the content of a file in W&B; None if it is not there, or not yet: W&B lists files early."""
    if file is None:
        return None
    with asking(f"{file.name} of {file.run.id}"), tempfile.TemporaryDirectory() as folder:
        try:
            file.download(root=folder, replace=True).close()
        except Exception as error:
            if http_status(error) == HTTPStatus.NOT_FOUND:
                return None
            raise
        return Path(folder, file.name).read_bytes()
