"""Copy a run that another study has finished, or the weights of a run with the same training."""

import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from poslab.config.text import is_file_name
from poslab.record.facts import Manifest
from poslab.record.locks import TakenError, file_lock, run_lock
from poslab.record.manifest import damaged_files
from poslab.record.schema import FINAL, MANIFEST
from poslab.record.seal import UnreadableError
from poslab.record.writer import RunRecord, now
from poslab.study.run.identity import weights_identity
from poslab.study.run.job import Job
from poslab.study.status import sound_manifest


def take_over(jobs: Sequence[Job]) -> tuple[list[str], int]:
    """Copy runs that other studies have finished, or else the weights of runs with the same training.

    Return the source study of each copied run, and the number of runs that received weights: these need no
    training, and resume with their evaluation. Only undamaged files are copied, and only for jobs without a
    directory.
    """
    copied: list[str] = []
    trained = 0
    for _, source, same in _elsewhere(jobs, _take):
        if same:
            copied.append(source.parent.name)
        else:
            trained += 1
    return copied, trained


def would_take_over(jobs: Sequence[Job]) -> tuple[set[Path], set[Path]]:
    """Return the directories of the runs that `take_over` would copy, and of those it would give weights."""
    is_same = {job.directory: same for job, _, same in _elsewhere(jobs, lambda *_: True)}
    copied = {directory for directory, same in is_same.items() if same}
    return copied, is_same.keys() - copied


def one_of_each_training(jobs: Sequence[Job]) -> tuple[list[Job], list[Job]]:
    """Return the first job of each group with the same training, and the others, which need its weights."""
    first: dict[str, Job] = {}
    for job in jobs:
        first.setdefault(_training(Manifest.model_validate(job.facts)), job)
    chosen = {job.directory for job in first.values()}
    return list(first.values()), [job for job in jobs if job.directory not in chosen]


def _elsewhere(jobs: Sequence[Job], serves: Callable[..., bool]) -> Iterator[tuple[Job, Path, bool]]:
    """Yield each job without a directory for which `serves` accepts a finished run, and that run's directory.

    The third item is whether it is the same run, which is preferred to a run with the same training.
    """
    new = [job for job in jobs if not job.directory.exists()]
    identities, trainings = defaultdict(list), defaultdict(list)
    for runs in {job.directory.parent.parent for job in new}:
        for path, manifest in finished_runs(runs):
            identities[manifest.identity].append((path, manifest, True))
            trainings[_training(manifest)].append((path, manifest, False))
    for job in new:
        training = _training(Manifest.model_validate(job.facts))
        for path, manifest, same in (*identities[job.identity], *trainings[training]):
            if _undamaged(path, manifest, weights_only=not same) and serves(job, path, manifest, same):
                yield job, path, same
                break


def _undamaged(directory: Path, manifest: Manifest, weights_only: bool) -> bool:
    """Return whether all files of a run, or only its weights, are as they were written."""
    files = manifest.files or {}
    if weights_only:
        files = {name: digest for name, digest in files.items() if name == FINAL}
    return bool(files) and not damaged_files(directory, files)


def _training(manifest: Manifest) -> str:
    origin = manifest.origin
    begun = () if origin is None else (origin.identity, origin.checkpoint)
    code = manifest.code, manifest.code_parts
    return weights_identity(manifest.config or {}, *code, manifest.corpus.fingerprint, *begun)


def finished_runs(runs: Path) -> Iterator[tuple[Path, Manifest]]:
    """Yield the directories and manifests of the finished runs of all studies in the folder `runs`."""
    for path in sorted(runs.glob(f"*/*-*/{MANIFEST}")):
        manifest = sound_manifest(path.parent)
        if manifest is not None and manifest.status == "done":
            yield path.parent, manifest


def _take(job: Job, source: Path, manifest: Manifest, same: bool) -> bool:
    return _install(job, partial(_copy if same else _copy_weights, job, source, manifest))


def _copy(job: Job, source: Path, manifest: Manifest, unfinished: Path) -> bool:
    try:
        for name in filter(is_file_name, manifest.files or {}):
            shutil.copy2(source / name, unfinished / name)
    except OSError:  # another command removed the source, or the disk is full: then the run waits for space
        return False
    RunRecord(unfinished, manifest).update(
        study=job.config.study,
        run=job.directory.name,
        pos=job.request.pos,
        attention=job.request.attention,
        wandb=None,  # W&B gets a separate run, in this study's group
        taken_from=source.parent.name,
    )
    return not damaged_files(unfinished, manifest.files)  # otherwise the source changed during the copy


def _copy_weights(job: Job, source: Path, manifest: Manifest, unfinished: Path) -> bool:
    from poslab.training.checkpoints import trained_state, writer  # imports PyTorch

    try:
        state = trained_state(source / FINAL, str(manifest.identity))
    except UnreadableError:
        return False
    facts = {
        **job.facts,
        "run": job.directory.name,
        "status": "interrupted",
        "started": now(),
        "origin": manifest.origin and manifest.origin.as_json(),
        "notes": [*(manifest.notes or []), f"trained as {source.parent.name}/{source.name}"],
        "memory_bytes": manifest.memory_bytes,
    }
    record = RunRecord(unfinished, Manifest.model_validate(facts))
    identity = {"identity": job.identity, "config": job.config.result_settings()}
    record.write_file(FINAL, writer({**state, **identity}))
    record.update(files=record.files)
    return True


def _install(job: Job, fill: Callable[[Path], bool]) -> bool:
    """Create the job's directory atomically, with the files that `fill` writes; return whether it worked."""
    job.directory.parent.mkdir(parents=True, exist_ok=True)
    with suppress(TakenError), file_lock(run_lock(job.directory)):
        if job.directory.exists():
            return False
        unfinished = job.directory.with_name(f".{job.directory.name}.copy")
        shutil.rmtree(unfinished, ignore_errors=True)  # left by a killed command
        unfinished.mkdir()
        try:
            if not fill(unfinished):
                return False
            unfinished.rename(job.directory)
            return True
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return False  # another command runs the job
