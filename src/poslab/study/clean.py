"""Remove runs of a study: those that failed, were stopped or never began, or those that are named.

In a run's directory, only the files of poslab and of the run's loggers are removed; if it contains other
files, these and the directory stay. Nothing is removed through a link.
"""

import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path

from poslab.config.registry import find, part_names
from poslab.config.schema import ConfigError
from poslab.config.text import listing, plain
from poslab.loggers import LOGGERS, RunLogger
from poslab.loggers.send.offline import NAME as PART_OF_WANDB
from poslab.loggers.send.offline import VIEW
from poslab.measures import table_files
from poslab.record.facts import Manifest
from poslab.record.files import UNFINISHED
from poslab.record.locks import TakenError, file_lock, run_lock
from poslab.record.schema import CHECKPOINTS, LOG, MANIFEST, PROGRESS, RUN_FILES
from poslab.record.study_list import WAIT, read_study_list, recorded_runs, write_study_list
from poslab.study.run.branches import FOLDER
from poslab.study.run.worker import request_file
from poslab.study.status import StudyFiles, sound_manifest

OWN_FILES = RUN_FILES | {LOG, PROGRESS, f".{PROGRESS}"}  # the last is an unfinished progress file
RANK_LOGS = "log.rank[0-9]*.txt"  # logs of a run's other processes under Slurm
# Files of W&B beside its folders of the run: its logs, and links to the newest log and folder.
WANDB_FILES = ("latest-run", "debug.log", "debug-internal.log", "debug-core.log", "debug-cli.root.log")
STATE = re.compile(r"\d{8,}-[0-9a-f]{16}\.pt")


def removable(folder: Path, named: Sequence[str]) -> dict[Path, str]:
    """Return the runs of the study in `folder` to remove, each directory with the reason for it.

    They are the `named` runs or, if none is named, those that failed, were stopped or never began.

    Raise ConfigError if the study's list of runs cannot be read, if the study has no run of a given name, or
    if a named run is running or waiting.
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
            raise ConfigError(f"{name} is {states[name].state}: first stop the command that runs it")
    if named:
        return {
            folder / name: states[name].state if name in states else "not on the study's list"
            for name in named
        }
    # A run that diverged is a result, and an unreadable record may be that of a finished run: these are
    # removed only if they are named.
    return {
        entry.directory: f"failed: {plain(entry.note, 100)}" if entry.state == "failed" else entry.state
        for entry in files.entries
        if entry.state in ("stopped", "abandoned")
        or (entry.state == "failed" and (sound_manifest(entry.directory) or Manifest()).status == "failed")
    }


def remove(folder: Path, runs: Iterable[Path]) -> tuple[list[str], list[str]]:
    """Remove runs from disk and from the study's list; return their names, and a line for whatever stays."""
    removed, left = [], []
    for directory in runs:
        if directory.is_symlink():
            left.append(f"{directory} was not removed: it is a link")
            continue
        try:
            with file_lock(run_lock(directory), 0.0):
                left += _remove_directory(directory)
        except TakenError:
            left.append(f"{directory.name} was not removed: a command has started it in the meantime")
            continue
        removed.append(directory.name)
    with file_lock(folder / ".study.lock", WAIT):
        listed = read_study_list(folder)
        if listed is not None and removed:
            left_runs, left_latest = (
                tuple(name for name in names if name not in removed) for names in (listed.runs, listed.latest)
            )
            commands = listed.commands if left_runs else ()  # the report names the commands of its runs
            write_study_list(folder, replace(listed, runs=left_runs, latest=left_latest, commands=commands))
    return removed, left


def _remove_directory(directory: Path) -> list[str]:
    """Remove a run's own files and empty folders; return a line that names the files that stay, if any."""
    kinds = [find(name, RunLogger, LOGGERS, "logger") for name in part_names(LOGGERS)]  # type: ignore[type-abstract]
    patterns = [*OWN_FILES, *table_files(), RANK_LOGS, *(pattern for kind in kinds for pattern in kind.files)]
    paths = [
        Path(folder, name) for folder, folders, files in os.walk(directory) for name in (*folders, *files)
    ]
    removed = [path for path in paths if _is_own(path, path.relative_to(directory), patterns)]
    for path in sorted(removed, key=lambda path: path == directory / MANIFEST):  # the manifest goes last
        path.unlink(missing_ok=True)
    for folder, _, _ in os.walk(directory, topdown=False):
        with suppress(OSError):  # the folder contains other files
            os.rmdir(folder)
    request_file(directory).unlink(missing_ok=True)
    _remove_view(directory)
    if not directory.exists():
        return []
    left = sorted(path.name for path in directory.iterdir())
    return [f"{directory} stays: it contains files that poslab did not write: {listing(left)}"]


def _is_own(path: Path, inside: Path, patterns: Sequence[str]) -> bool:
    """Return whether poslab or a logger wrote `path`; `inside` is its path from the run's directory."""
    folder = inside.parts[0]
    if folder == "wandb" and len(inside.parts) > 1:
        name = inside.parts[1]
        of_wandb = name in WANDB_FILES if len(inside.parts) == 2 else PART_OF_WANDB.fullmatch(name)
        return bool(of_wandb) and (path.is_symlink() or not path.is_dir())  # only W&B creates links
    if path.is_symlink() or not path.is_file():
        return False
    unfinished = UNFINISHED.fullmatch(path.name)
    name = unfinished["name"] if unfinished else path.name
    if folder == CHECKPOINTS or folder.startswith(FOLDER):
        return STATE.fullmatch(name) is not None
    return any(
        fnmatch(str(inside.with_name(name)), pattern)
        for pattern in patterns
        if pattern.count("/") == len(inside.parts) - 1  # since * also matches slashes
    )


def _remove_view(directory: Path) -> None:
    """Remove the link through which `wandb leet` shows a run, and its folder."""
    pattern = re.compile(rf"run-\d{{8}}_\d{{6}}-{re.escape(directory.name)}")
    for path in (directory.parent / VIEW).glob("run-*"):
        if pattern.fullmatch(path.name) and path.is_dir() and not path.is_symlink():
            (path / f"run-{directory.name}.wandb").unlink(missing_ok=True)
            with suppress(OSError):
                path.rmdir()
