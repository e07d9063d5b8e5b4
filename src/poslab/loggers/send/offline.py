"""W&B's files of a run that it tracks offline: a directory for each process of the run."""

import os
import re
import secrets
import shutil
from contextlib import suppress
from glob import escape
from pathlib import Path

from poslab.loggers.send.login import in_wandb_sweep
from poslab.record.facts import WandbPlace

# The number at the end tells directories of one second apart.
NAME = re.compile(r"(offline-)?run-(?P<begun>\d{8}_\d{6})-(?P<id>.+?)(-\d{1,2})?")
VIEW = "leet"  # in a study's folder: what `wandb leet` opens


def identifier(folder: Path) -> str | None:
    """W&B's id of the run that a directory belongs to."""
    match = NAME.fullmatch(folder.name)
    return match["id"] if match else None


def run_id(directory: Path, known: WandbPlace | None) -> str:
    """W&B's id of a run: an agent's of a sweep, else the one on record, that of W&B's files, or a new one."""
    if in_wandb_sweep():
        return os.environ["WANDB_RUN_ID"]
    return (known and known.id) or _last_identifier(directory) or secrets.token_hex(4)


def _last_identifier(directory: Path) -> str | None:
    """The id under which W&B last tracked a run directory, online or offline."""
    identifiers = [
        (path.name.removeprefix("offline-"), known)
        for path in (directory / "wandb").glob("*run-*-*")
        if (known := identifier(path))
    ]
    return max(identifiers)[1] if identifiers else None


def offline_folders(directory: Path) -> list[Path]:
    """The offline directories below a run directory, the oldest first."""
    return sorted(path for path in (directory / "wandb").glob("offline-run-*") if identifier(path))


def written(folder: Path) -> int:
    """Bytes that W&B has written of the run."""
    return sum(path.stat().st_size for path in folder.glob("*.wandb"))


def show_in_terminal(folder: Path, directory: Path) -> None:
    """Let `wandb leet runs/<study>/leet` show a run, whose W&B files are in `folder`, by links there.

    leet shows the runs of one folder, by the names of their directories there.
    """
    match = NAME.fullmatch(folder.name)
    if not match:
        return
    view, run = directory.parent / VIEW, directory.name
    shown = view / f"run-{match['begun']}-{run}"
    earlier = [path for path in view.glob(f"run-*-{escape(run)}") if path != shown]
    with suppress(OSError):  # a file system without links
        shown.mkdir(parents=True, exist_ok=True)
        link = shown / f"run-{run}.wandb"
        link.unlink(missing_ok=True)
        link.symlink_to(os.path.relpath(folder / f"run-{match['id']}.wandb", shown))
    for path in earlier:
        shutil.rmtree(path, ignore_errors=True)
