"""Remove runs of a study: those that failed, were stopped or never began, or those that are named.

In a run's directory, only the files and folders of poslab and of loggers are removed; if it contains others,
these and the directory stay. Nothing is removed through a link.
"""

import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatch
from glob import escape
from pathlib import Path

from poslab.config.registry import find, part_names
from poslab.config.schema import ConfigError
from poslab.config.text import listing, plain
from poslab.loggers import LOGGERS, RunLogger
from poslab.loggers.send.offline import VIEW
from poslab.measures import table_files
from poslab.record.facts import Manifest
from poslab.record.files import remove_unfinished
from poslab.record.locks import TakenError, file_lock, run_lock
from poslab.record.schema import CHECKPOINTS, LOG, MANIFEST, PROGRESS, RUN_FILES
from poslab.record.study_list import WAIT, read_study_list, write_study_list
from poslab.study.run.branches import FOLDER
from poslab.study.run.worker import request_file
from poslab.study.status import StudyFiles, sound_manifest

# Besides tables and the files of loggers; whole folders, and logs of a run's other processes under Slurm.
OWN = (*RUN_FILES, LOG, PROGRESS, f".{PROGRESS}", "log.rank[0-9]*.txt", "wandb", CHECKPOINTS, f"{FOLDER}*")


def removable(folder: Path, named: Sequence[str]) -> dict[Path, str]:
    """Return the runs of the study in `folder` to remove, each directory with the reason for it.

    They are the `named` runs or, if none is named, those that failed, were stopped or never began.

    Raise ConfigError if the study's list of runs cannot be read, if the study has no run of a given name, or
    if a named run is running or waiting.
    """
    files = StudyFiles(folder)
    files.refresh()
    states = {entry.directory.name: entry for entry in files.entries}
    if missing := [name for name in named if name not in states]:
        known = listing([*states], 8) or "none"
        raise ConfigError(f"{folder} has no run {plain(missing[0], 100)}; there are {known}")
    for name in named:
        if states[name].state in ("running", "waiting"):
            raise ConfigError(f"{name} is {states[name].state}: first stop the command that runs it")
    if named:
        return {folder / name: states[name].state for name in named}
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
    patterns = [*OWN, *table_files(), *(pattern for kind in kinds for pattern in kind.files)]
    remove_unfinished(directory, lambda name: any(fnmatch(name, pattern) for pattern in patterns))
    for pattern in sorted(patterns, key=lambda pattern: pattern == MANIFEST):  # the manifest goes last
        for path in directory.glob(pattern):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif not path.parent.is_symlink():
                path.unlink()
    for folder in (*directory.glob("*"), directory):
        with suppress(OSError):  # a file, or a folder with other files
            folder.rmdir()
    request_file(directory).unlink(missing_ok=True)
    for view in (directory.parent / VIEW).glob(f"run-*-{escape(directory.name)}"):
        shutil.rmtree(view, ignore_errors=True)
    if not directory.exists():
        return []
    left = sorted(path.name for path in directory.iterdir())
    return [f"{directory} stays: it contains files that poslab did not write: {listing(left)}"]
