"""What W&B keeps on disk of a run that it tracks offline: a directory a process."""

import os
import re
import shutil
from contextlib import suppress
from glob import escape
from pathlib import Path

# A number at the end where a second has several.
NAME = re.compile(r"(offline-)?run-(?P<begun>\d{8}_\d{6})-(?P<id>.+?)(-\d{1,2})?")
VIEW = "leet"  # in a study's folder: what `wandb leet` opens


def identifier(part: Path) -> str | None:
    """W&B's id of the run that a directory belongs to."""
    found = NAME.fullmatch(part.name)
    return found["id"] if found else None


def last_identifier(directory: Path) -> str | None:
    """The id under which W&B last tracked a run directory, online or offline."""
    found = [
        (path.name.removeprefix("offline-"), known)
        for path in (directory / "wandb").glob("*run-*-*")
        if (known := identifier(path))
    ]
    return max(found)[1] if found else None


def parts(directory: Path) -> list[Path]:
    """The offline directories below a run directory, the oldest first."""
    return sorted(path for path in (directory / "wandb").glob("offline-run-*") if identifier(path))


def written(part: Path) -> int:
    """Bytes of what W&B was told that are on disk."""
    return sum(path.stat().st_size for path in part.glob("*.wandb"))


def show_in_terminal(part: Path, directory: Path) -> None:
    """Let `wandb leet runs/<study>/leet` show what W&B writes to `part` of a run directory.

    It opens the runs of one folder, and calls them by the names of their directories and files there.
    """
    found = NAME.fullmatch(part.name)
    if not found:
        return
    view, run = directory.parent / VIEW, directory.name
    shown = view / f"run-{found['begun']}-{run}"
    earlier = [path for path in view.glob(f"run-*-{escape(run)}") if path != shown]
    with suppress(OSError):  # a system without links
        shown.mkdir(parents=True, exist_ok=True)
        link = shown / f"run-{run}.wandb"
        link.unlink(missing_ok=True)
        link.symlink_to(os.path.relpath(part / f"run-{found['id']}.wandb", shown))
    for path in earlier:
        shutil.rmtree(path, ignore_errors=True)
