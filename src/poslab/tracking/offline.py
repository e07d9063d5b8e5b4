"""What W&B keeps on disk of a run that it tracks offline: a directory a process."""

import re
from pathlib import Path

NAME = re.compile(r"(offline-)?run-\d{8}_\d{6}-(?P<id>.+?)(-\d{1,2})?")  # a number where a second has several


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
