"""The record of one run in W&B: listed, checked, and downloaded into a run directory of the cache.

Names and contents come from outside: only files with the right seal and checksum are used, and no name may
lead out of its folder.
"""

import hashlib
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
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

PREFIX = "record/"  # of the record among the files of a run


@dataclass(frozen=True)
class RemoteRecord:
    """A run in W&B. `files` are those of its record, by their names in its directory."""

    run: Any  # of wandb.Api
    title: str
    files: Mapping[str, Any]
    content: bytes = b""  # of the manifest
    manifest: Manifest = field(default_factory=Manifest)  # empty where there is a problem
    problem: str = ""

    @property
    def name(self) -> str:
        """The name of its directory."""
        return str(self.manifest.run)

    @property
    def tables(self) -> dict[str, str]:
        """The SHA-256 of each table that a report reads, by its name."""
        return self.manifest.tables if self.manifest.status in ENDED else {}


def list_record(run: Any) -> RemoteRecord:
    """List the files of a run's record in W&B, without downloading any."""
    with asking(f"the files of {run.id}"):
        files = {str(file.name): file for file in run.files(per_page=500)}
    record = {name.removeprefix(PREFIX): file for name, file in files.items() if name.startswith(PREFIX)}
    return RemoteRecord(run, f"{run.name} ({run.id})", record)


def read_record(remote: RemoteRecord, study: str | None) -> RemoteRecord:
    """Return the record with its manifest, or with a problem where W&B has none of a run of `study`."""
    content = download(remote.files.get(MANIFEST))
    if content is None:
        return replace(remote, problem=f"has no record: {remote.run.state} in W&B")
    try:
        manifest = parse_manifest(content)
    except OtherFormatError as error:
        return replace(remote, problem=f"is not read: {error.reason}")
    except DamagedError:
        return replace(remote, problem=f"has a damaged {MANIFEST}")
    problem = _misuse(manifest, study)
    return replace(remote, content=content, manifest=Manifest() if problem else manifest, problem=problem)


def _misuse(manifest: Manifest, study: str | None) -> str:
    """Return why a manifest with a right seal is not used; empty where it is used."""
    if study is not None and manifest.study != study:
        return f"names the study {str(manifest.study)[:60]!r}"
    names = (manifest.study, manifest.run, *(manifest.files or {}))
    return "" if all(map(is_file_name, names)) else "names a file outside its folder"


def download_record(remote: RemoteRecord, directory: Path) -> tuple[int, list[str]]:
    """Make `directory` equal to W&B's record; return the number of tables downloaded and a line per bad one.

    A table that is missing or damaged in W&B is missing in `directory`: a report names the run.
    """
    tables, problems, count = remote.tables, [], 0
    for name in damaged_files(directory, tables):
        (directory / name).unlink(missing_ok=True)
        content = download(remote.files.get(name))
        count += content is not None
        if content is not None and hashlib.sha256(content).hexdigest() == tables[name]:
            write_atomic(directory / name, content)
        else:
            problems.append(f"{remote.title}: {name} is {'missing' if content is None else 'damaged'} in W&B")
    write_atomic(directory / MANIFEST, remote.content)
    for path in directory.glob(f"*{TABLE_SUFFIX}"):
        if path.name not in tables:  # of another state of the run
            path.unlink()
    return count, problems


def download(file: Any | None) -> bytes | None:
    """Return the content of a file in W&B; None where there is none, or not yet: W&B lists files early."""
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
