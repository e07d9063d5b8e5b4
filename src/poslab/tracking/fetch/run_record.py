"""The record of one run as W&B holds it: looked at, checked, and kept as a run directory in the cache.

Names and contents come from outside: a record is used as far as its seal and its checksums hold, and no name
leads out of its folder.
"""

import base64
import hashlib
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from pathlib import Path
from typing import Any

from poslab.config.text import is_file_name
from poslab.record.files import DamagedError, write_atomic
from poslab.record.manifest import OtherFormatError, damaged_files, parse_manifest
from poslab.record.schema import ENDED, MANIFEST, Manifest
from poslab.tracking.fetch.account import asking, http_status

PREFIX = "record/"  # of the record among the files of a run


@dataclass(frozen=True)
class Held:
    """A run as W&B holds it. `files` are those of its record, by their names in its directory."""

    run: Any  # of wandb.Api
    title: str
    files: Mapping[str, Any]
    content: bytes = b""  # of the manifest
    manifest: Manifest = field(default_factory=Manifest)  # empty where there is a problem
    problem: str = ""
    unreadable: bool = False  # whether the problem is that the manifest is damaged, older or newer

    @property
    def name(self) -> str:
        """Of its directory."""
        return str(self.manifest.run)

    @property
    def tables(self) -> dict[str, str]:
        """The SHA-256 of each table that a report reads, by its name."""
        return self.manifest.tables if self.manifest.status in ENDED else {}


def held_by(run: Any) -> Held:
    """What is listed of a run's record, none of it read."""
    with asking(f"the files of {run.id}"):
        files = {str(file.name): file for file in run.files(per_page=500)}
    record = {name.removeprefix(PREFIX): file for name, file in files.items() if name.startswith(PREFIX)}
    return Held(run, f"{run.name} ({run.id})", record)


def looked_at(held: Held, study: str | None, kept: Mapping[str, Path]) -> Held:
    """With its manifest, read and checked; a problem where it is no manifest of a run of `study`.

    `kept` are the manifests in the cache by their MD5: one that is there is not read from W&B again.
    """
    file = held.files.get(MANIFEST)
    known = None if file is None else kept.get(str(file.md5))
    content = _content(file) if known is None else known.read_bytes()
    if content is None:
        return replace(held, problem=f"has no record: {held.run.state} in W&B")
    try:
        manifest = parse_manifest(content)
    except OtherFormatError as error:
        return replace(held, content=content, problem=f"is not read: {error.reason}", unreadable=True)
    except DamagedError:
        return replace(held, content=content, problem=f"has a damaged {MANIFEST}", unreadable=True)
    problem = _wrong(manifest, study)
    return replace(held, content=content, manifest=Manifest() if problem else manifest, problem=problem)


def _wrong(manifest: Manifest, study: str | None) -> str:
    """Why a sound manifest is not used, or nothing."""
    if study is not None and manifest.study != study:
        return f"says that it is of study {str(manifest.study)[:60]!r}"
    names = (manifest.study, manifest.run, *(manifest.files or {}))
    return "" if all(map(is_file_name, names)) else "names a file outside its folder"


def keep(held: Held, directory: Path) -> tuple[int, list[str]]:
    """Make `directory` what W&B holds of the run: how many files were read, and a line for each bad one.

    A table that is missing or not as its checksum says is not there afterwards: a report lists the run.
    """
    tables, problems, count = held.tables, [], 0
    for name in damaged_files(directory, tables):
        (directory / name).unlink(missing_ok=True)
        file = held.files.get(name)
        content = _content(file)
        count += content is not None
        if content is not None and hashlib.sha256(content).hexdigest() == tables[name]:
            write_atomic(directory / name, content)
        else:
            problems.append(f"{held.title}: {name} is {'missing' if content is None else 'damaged'} in W&B")
    path = directory / MANIFEST
    if not path.exists() or path.read_bytes() != held.content:
        write_atomic(path, held.content)
    for left in directory.iterdir():  # of another state of the run
        if left.name not in (MANIFEST, *tables):
            left.unlink()
    return count, problems


def download(file: Any) -> bytes | None:
    """The content of a file in W&B, None where there is none: it is listed before it is sent."""
    with asking(f"{file.name} of {file.run.id}"), tempfile.TemporaryDirectory() as folder:
        try:
            file.download(root=folder, replace=True).close()
        except Exception as error:
            if http_status(error) == HTTPStatus.NOT_FOUND:
                return None
            raise
        return Path(folder, file.name).read_bytes()


def _content(file: Any | None) -> bytes | None:
    return None if file is None else download(file)


def kept_manifests(study: Path) -> dict[str, Path]:
    """The manifests in the cache by their MD5 as W&B writes it."""
    return {md5(path.read_bytes()): path for path in study.glob(f"[!.]*/{MANIFEST}")}


def md5(content: bytes) -> str:
    return base64.b64encode(hashlib.md5(content, usedforsecurity=False).digest()).decode()
