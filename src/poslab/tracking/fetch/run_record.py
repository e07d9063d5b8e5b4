"""The record of one run in W&B: listed, checked, and downloaded into a run directory of the cache.

Names and contents come from outside: a record is used only as far as its seal and checksums are right, and no
name may lead out of its folder.
"""

import base64
import hashlib
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from pathlib import Path
from typing import Any

from poslab.record.files import DamagedError, write_atomic
from poslab.record.manifest import damaged_files, manifest_of
from poslab.tracking.fetch.account import asking, http_status

MANIFEST = "manifest.json"
PREFIX = "record/"  # of the record among the files of a run
ENDED = ("done", "diverged")  # whose tables a report reads


@dataclass(frozen=True)
class RemoteRecord:
    """A run as W&B holds it. `files` are those of its record, by their names in its directory."""

    run: Any  # of wandb.Api
    title: str
    files: Mapping[str, Any]
    content: bytes = b""  # of the manifest
    manifest: Mapping[str, Any] = field(default_factory=dict)  # empty where there is a problem
    problem: str = ""

    @property
    def name(self) -> str:
        """Of its directory."""
        return str(self.manifest["run"])

    @property
    def tables(self) -> dict[str, str]:
        """The SHA-256 of each table that a report reads, by its name."""
        files: Mapping[str, str] = self.manifest.get("files") or {}
        ended = self.manifest.get("status") in ENDED
        return {name: digest for name, digest in files.items() if ended and name.endswith(".csv")}


def list_record(run: Any) -> RemoteRecord:
    """The files of a run's record in W&B, none of them downloaded."""
    with asking(f"the files of {run.id}"):
        files = {str(file.name): file for file in run.files(per_page=500)}
    record = {name.removeprefix(PREFIX): file for name, file in files.items() if name.startswith(PREFIX)}
    return RemoteRecord(run, f"{run.name} ({run.id})", record)


def read_record(remote: RemoteRecord, study: str | None, cached: Mapping[str, Path]) -> RemoteRecord:
    """The record with its manifest, or with a problem where that is not a manifest of a run of `study`.

    `cached` are the manifests in the cache by their MD5, which are not downloaded again.
    """
    file = remote.files.get(MANIFEST)
    known = None if file is None else cached.get(str(file.md5))
    content = _content(file) if known is None else known.read_bytes()
    if content is None:
        return replace(remote, problem=f"has no record: {remote.run.state} in W&B")
    try:
        manifest = manifest_of(content, Path(MANIFEST))
    except DamagedError:
        return replace(remote, content=content, problem="has a damaged manifest.json")
    problem = _misuse(manifest, study)
    return replace(remote, content=content, manifest={} if problem else manifest, problem=problem)


def _misuse(manifest: Mapping[str, Any], study: str | None) -> str:
    """Why a manifest with a right seal is not used; empty where it is."""
    own, run, files = manifest.get("study"), manifest.get("run"), manifest.get("files") or {}
    if study is not None and own != study:
        return f"says that it is of study {str(own)[:60]!r}"
    names = [own, run, *files] if isinstance(files, dict) else [None]
    return "" if all(map(is_a_name, names)) else "names a file outside its folder"


def is_a_name(name: object) -> bool:
    """Whether it is the name of a file or folder, and leads to no other folder."""
    if not isinstance(name, str) or "\0" in name or name.startswith("."):
        return False
    return bool(name) and Path(name).name == name


def download_record(remote: RemoteRecord, directory: Path) -> tuple[int, list[str]]:
    """Make `directory` equal to W&B's record; how many tables were downloaded, and a line for each bad one.

    A table that is missing or damaged in W&B is missing in `directory`: a report says so of the run.
    """
    tables, problems, count = remote.tables, [], 0
    for name in damaged_files(directory, {"files": tables}):
        (directory / name).unlink(missing_ok=True)
        file = remote.files.get(name)
        content = _content(file)
        count += content is not None
        if content is not None and hashlib.sha256(content).hexdigest() == tables[name]:
            write_atomic(directory / name, content)
        else:
            problems.append(f"{remote.title}: {name} is {'missing' if content is None else 'damaged'} in W&B")
    path = directory / MANIFEST
    if not path.exists() or path.read_bytes() != remote.content:
        write_atomic(path, remote.content)
    for path in directory.iterdir():
        if path.name not in (MANIFEST, *tables):  # of another state of the run
            path.unlink()
    return count, problems


def download(file: Any) -> bytes | None:
    """The content of a file in W&B; None where it is listed but not there, since W&B lists a file early."""
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


def cached_manifests(study: Path) -> dict[str, Path]:
    """The manifests in the cache by their MD5 as W&B writes it."""
    return {md5(path.read_bytes()): path for path in study.glob(f"[!.]*/{MANIFEST}")}


def md5(content: bytes) -> str:
    return base64.b64encode(hashlib.md5(content, usedforsecurity=False).digest()).decode()
