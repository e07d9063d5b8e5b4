"""Remove runs of a study: those that failed, were stopped or never began, and any that are named.

In a run's directory only the files of poslab and of the run's loggers are removed; other files stay, and the
directory with them. Nothing is removed through a link.
"""

import re
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from poslab.config.registry import find, part_names
from poslab.config.schema import ConfigError
from poslab.config.text import listing, plain
from poslab.loggers import LOGGERS, RunLogger
from poslab.loggers.send.offline import NAME as PART_OF_WANDB
from poslab.loggers.send.offline import VIEW
from poslab.measures import table_files
from poslab.record.files import remove_unfinished
from poslab.record.locks import TakenError, file_lock, run_lock
from poslab.record.manifest import read_manifest
from poslab.record.schema import CHECKPOINTS, LOG, MANIFEST, PROGRESS, RUN_FILES
from poslab.record.study_list import WAIT, read_study_list, recorded_runs, write_study_list
from poslab.study.run.branches import FOLDER
from poslab.study.run.worker import request_file
from poslab.study.status import StudyFiles

OWN_FILES = RUN_FILES | {LOG, PROGRESS, f".{PROGRESS}"}  # the last: an unfinished one
RANK_LOGS = "log.rank[0-9]*.txt"  # of Slurm's other processes
# Of W&B, beside the folders of the run: its logs, and links to the newest of both.
WANDB_FILES = ("latest-run", "debug.log", "debug-internal.log", "debug-core.log", "debug-cli.root.log")
STATE = re.compile(r"\d{8,}-[0-9a-f]{16}\.pt(\.other)?")


def removable(folder: Path, named: Sequence[str]) -> dict[Path, str]:
    """Return the runs of the study in `folder` that failed, were stopped or never began, or those `named`.

    A run is its directory, with the reason in words.

    Raises ConfigError where the study has no list that can be read, or no such run, or where a named run is
    running.
    """
    files = StudyFiles(folder)
    files.refresh()
    states = {entry.directory.name: entry for entry in files.entries}
    unlisted = [name for name in recorded_runs(folder) if name not in states]
    if missing := [name for name in named if name not in states and name not in unlisted]:
        known = listing([*states, *unlisted], 8) or "none"
        raise ConfigError(f"{folder} has no run {plain(missing[0], 100)}; there are {known}")
    for name in named:
        if name in states and states[name].state in ("running", "waiting"):
            raise ConfigError(f"{name} is {states[name].state}: stop the command that runs it first")
    if named:
        return {
            folder / name: states[name].state if name in states else "not on the study's list"
            for name in named
        }
    return {
        entry.directory: f"failed: {plain(entry.note, 100)}" if entry.state == "failed" else entry.state
        for entry in files.entries
        if entry.state in ("failed", "stopped", "abandoned") and _is_unfinished(entry.directory)
    }


def _is_unfinished(directory: Path) -> bool:
    """Return whether the record is of an unfinished run, or missing. A run that diverged is a result, and an
    unreadable record may be that of a finished run: both are removed only by name.
    """
    try:
        manifest = read_manifest(directory)
    except (ConfigError, OSError):
        return False
    return manifest is None or manifest.status in ("failed", "interrupted", "running")


def remove(folder: Path, runs: Iterable[Path]) -> tuple[list[str], list[str]]:
    """Remove runs from the disk and the study's list; return their names, and a line for whatever stays."""
    removed, left = [], []
    for directory in runs:
        if directory.is_symlink():
            left.append(f"{directory} is a link, and stays")
            continue
        try:
            with file_lock(run_lock(directory), 0.0):
                left += _remove_directory(directory)
        except TakenError:
            left.append(f"{directory.name} stays: a command has begun it meanwhile")
            continue
        removed.append(directory.name)
    with file_lock(folder / ".study.lock", WAIT):
        listed = read_study_list(folder)
        if listed is not None and removed:
            left_runs, left_latest = (
                tuple(name for name in names if name not in removed) for names in (listed.runs, listed.latest)
            )
            commands = listed.commands if left_runs else ()  # a report names those of its runs
            write_study_list(folder, replace(listed, runs=left_runs, latest=left_latest, commands=commands))
    return removed, left


def _remove_directory(directory: Path) -> list[str]:
    """Remove a run's own files and its folder; return a line for what stays."""
    _remove_wandb(directory)
    names = OWN_FILES | table_files() | {path.name for path in directory.glob(RANK_LOGS)}
    folders = [directory / CHECKPOINTS, *directory.glob(f"{FOLDER}*"), directory]
    for folder in folders:
        remove_unfinished(folder, lambda name: name in names or STATE.fullmatch(name) is not None)
    states = [path for folder in folders[:-1] for path in folder.glob("*") if STATE.fullmatch(path.name)]
    kinds = [find(name, RunLogger, LOGGERS, "logger") for name in part_names(LOGGERS)]  # type: ignore[type-abstract]
    of_loggers = [path for kind in kinds for pattern in kind.files for path in directory.glob(pattern)]
    record = directory / MANIFEST  # goes last
    for path in (*states, *of_loggers, *(directory / name for name in names - {MANIFEST}), record):
        if not path.parent.is_symlink():
            _unlink(path)
    for folder in (*(path.parent for path in of_loggers), *folders):
        with suppress(OSError):  # where something else lies in it
            folder.rmdir()
    _unlink(request_file(directory))
    if not directory.exists():
        return []
    left = sorted(path.name for path in directory.iterdir())
    return [f"{directory} stays, with files that poslab has not written: {listing(left)}"]


def _unlink(path: Path) -> None:
    """Remove a plain file, but no link."""
    if path.is_file() and not path.is_symlink():
        path.unlink(missing_ok=True)


def _remove_wandb(directory: Path) -> None:
    """Remove what W&B has written of the run, and the links by which `wandb leet` shows it."""
    folder = directory / "wandb"
    if folder.is_symlink() or not folder.is_dir():
        return
    for path in folder.iterdir():
        if PART_OF_WANDB.fullmatch(path.name) and path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name in WANDB_FILES and (path.is_symlink() or path.is_file()):
            path.unlink(missing_ok=True)
    with suppress(OSError):
        folder.rmdir()
    pattern = re.compile(rf"run-\d{{8}}_\d{{6}}-{re.escape(directory.name)}")
    for path in (directory.parent / VIEW).glob("run-*"):
        if pattern.fullmatch(path.name) and path.is_dir() and not path.is_symlink():
            (path / f"run-{directory.name}.wandb").unlink(missing_ok=True)
            with suppress(OSError):
                path.rmdir()
