"""Copy a run that another study has finished, instead of training it again."""

import re
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from poslab.config.text import is_file_name
from poslab.record.facts import Manifest
from poslab.record.locks import TakenError, holding, run_lock
from poslab.record.manifest import damaged_files, read_manifest
from poslab.record.schema import MANIFEST
from poslab.record.seal import UnreadableError
from poslab.record.writer import RunRecord
from poslab.study.run.job import Job


def copy_finished(jobs: Sequence[Job]) -> list[str]:
    """Copy undamaged records of the same runs from other studies; return the study of each copy.

    Nothing is copied where a run has a directory already.
    """
    copied = (
        next((source for source in sources if _copy(source, job)), None) for job, sources in _elsewhere(jobs)
    )
    return [source.parent.name for source in copied if source is not None]


def finished_elsewhere(jobs: Sequence[Job]) -> set[Path]:
    """Return the directories of the runs that `copy_finished` would copy."""
    return {job.directory for job, sources in _elsewhere(jobs) if any(map(_finished, sources))}


def _elsewhere(jobs: Sequence[Job]) -> list[tuple[Job, list[Path]]]:
    """Return the jobs without a directory, each with the directories of the same run in all studies."""
    new = [job for job in jobs if not job.directory.exists()]
    recorded: dict[str, list[Path]] = {}  # by the identity in their names
    for runs in {job.directory.parent.parent for job in new}:
        for path in sorted(runs.glob(f"*/*-*/{MANIFEST}")):
            recorded.setdefault(path.parent.name.rpartition("-")[2], []).append(path.parent)
    return [(job, recorded.get(job.identity, [])) for job in new]


def sound_manifest(directory: Path) -> Manifest | None:
    """Return the manifest of a run directory, None where there is none that can be read."""
    try:
        return read_manifest(directory)
    except (UnreadableError, OSError):
        return None


def _remove_unfinished(directory: Path) -> None:
    """Remove copies of the run that killed commands have left; the caller holds its lock."""
    copies = re.compile(rf"\.{re.escape(directory.name)}\.[a-z0-9_]{{8}}")
    for path in directory.parent.glob(".*"):
        if copies.fullmatch(path.name) and path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)


def _finished(source: Path) -> Manifest | None:
    """Return the manifest of a run that is finished and undamaged, else None."""
    manifest = sound_manifest(source)
    if manifest is None or manifest.status != "done" or damaged_files(source, manifest.files):
        return None
    return manifest


def _copy(source: Path, job: Job) -> bool:
    manifest = _finished(source)
    if manifest is None:
        return False
    changes = {
        "study": job.config.study,
        "run": job.directory.name,
        "pos": job.request.pos,
        "attention": job.request.attention,
        "wandb": None,  # W&B gets a run of its own, in this study's group
        "taken_from": source.parent.name,
    }
    job.directory.parent.mkdir(parents=True, exist_ok=True)
    with suppress(TakenError), holding(run_lock(job.directory)):
        if job.directory.exists():
            return False
        _remove_unfinished(job.directory)
        unfinished = Path(tempfile.mkdtemp(dir=job.directory.parent, prefix=f".{job.directory.name}."))
        try:
            for name in filter(is_file_name, manifest.files or {}):
                shutil.copy2(source / name, unfinished / name)
            RunRecord(unfinished, manifest).update(**changes)
            unfinished.chmod(0o755)
            if damaged_files(unfinished, manifest.files):  # the source has changed meanwhile
                return False
            unfinished.rename(job.directory)
            return True
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return False  # another command runs it
