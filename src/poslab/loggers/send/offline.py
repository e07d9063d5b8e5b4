"""W&B's files for a run tracked offline: one directory for each process of the run."""

import os
import re
import secrets
import shutil
from contextlib import suppress
from glob import escape
from pathlib import Path

from poslab.loggers.send.login import in_wandb_sweep
from poslab.record.facts import WandbPlace

# The number at the end distinguishes directories from the same second.
NAME = re.compile(r"(offline-)?run-(?P<begun>\d{8}_\d{6})-(?P<id>.+?)(-\d{1,2})?")
VIEW = "leet"  # in a study's folder: the folder for `wandb leet`


def identifier(folder: Path) -> str | None:
    """Return the W&B id of the run that a directory belongs to; None if it is not one of W&B's."""
    match = NAME.fullmatch(folder.name)
    return match["id"] if match else None


def run_id(directory: Path, known: WandbPlace | None) -> str:
    """Return a run's id in W&B: from a sweep's agent, the record or W&B's files, or a new one."""
    if in_wandb_sweep():
        return os.environ["WANDB_RUN_ID"]
    return (known and known.id) or _last_identifier(directory) or secrets.token_hex(4)


def _last_identifier(directory: Path) -> str | None:
    """Return the id under which W&B last tracked a run directory, online or offline."""
    identifiers = [
        (path.name.removeprefix("offline-"), known)
        for path in (directory / "wandb").glob("*run-*-*")
        if (known := identifier(path))
    ]
    return max(identifiers)[1] if identifiers else None


def offline_folders(directory: Path) -> list[Path]:
    """Return the offline directories in a run directory, oldest first."""
    return sorted(path for path in (directory / "wandb").glob("offline-run-*") if identifier(path))


def written(folder: Path) -> int:
    """Return the size of W&B's files for the run in bytes."""
    return sum(path.stat().st_size for path in folder.glob("*.wandb"))


def show_in_terminal(folder: Path, directory: Path) -> None:
    """Link a run's W&B files in `folder`, so that `wandb leet runs/<study>/leet` shows them.

    leet shows the runs in one folder, named by their directories.
    """
    match = NAME.fullmatch(folder.name)
    if not match:
        return
    view, run = directory.parent / VIEW, directory.name
    linked = view / f"run-{match['begun']}-{run}"
    earlier = [path for path in view.glob(f"run-*-{escape(run)}") if path != linked]
    with suppress(OSError):  # a file system without links
        linked.mkdir(parents=True, exist_ok=True)
        link = linked / f"run-{run}.wandb"
        link.unlink(missing_ok=True)
        link.symlink_to(os.path.relpath(folder / f"run-{match['id']}.wandb", linked))
    for path in earlier:
        shutil.rmtree(path, ignore_errors=True)
