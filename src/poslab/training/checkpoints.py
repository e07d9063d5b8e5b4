"""The files of a run's weights: states that it resumes from, and the final weights.

    <run>/checkpoints/00000400-5f2b1c0d9e8a7766.pt     the step, and the first digits of the content's SHA-256
    <run>/checkpoint.pt                                the final weights; their SHA-256 is in the manifest

Files are written whole or not at all and checked when they are read. A state's name has its checksum, since a
crash could come between two files.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import torch

from poslab.record.files import remove_unfinished, write_atomic
from poslab.record.seal import DamagedError, UnreadableError

FORMAT = 2  # of the final weights
STATE_FORMAT = 3  # of a state: Lightning's checkpoint
STATES = 2  # of a run: if the newest is damaged, the run resumes from the one before
NAME = re.compile(r"(\d{8,})-([0-9a-f]{16})\.pt")
ASIDE = ".other"  # after the name of a file that is named as a state but belongs to another run

# In both kinds of files, beside the format and the run's identity: `config`, the settings; `threads` of
# PyTorch; `rows` of metrics.csv so far; and `kernel`, of the attention.


def writer(content: Mapping[str, Any]) -> Callable[[BinaryIO], None]:
    """Return what writes `content`, only tensors and plain values, so that weights_only=True loads it.

    An error of the file, such as a full disk, is raised as it is.
    """

    def write(file: BinaryIO) -> None:
        try:
            torch.save(dict(content), file)
        except RuntimeError as error:  # that the file ends too early, which torch.save finds after the cause
            if isinstance(error.__context__, OSError):
                raise error.__context__ from None
            raise

    return write


def write_checkpoint(
    folder: Path, step: int, content: Mapping[str, Any], waiting: Callable[[], None] = lambda: None
) -> None:
    """Add a state of tensors and plain values, and remove all but the newest STATES.

    `waiting` is called while the disk is full, and may raise.
    """
    path = folder / _name(step, "0" * 64)
    digest = write_atomic(path, writer(content), lambda digest: _name(step, digest), waiting)
    earlier = [state for state in _newest_first(folder) if state.name != _name(step, digest)]
    for old in earlier[STATES - 1 :]:
        old.unlink(missing_ok=True)


def _name(step: int, digest: str) -> str:
    return f"{step:08d}-{digest[:16]}.pt"


def newest_checkpoint(
    folder: Path, identity: str, note: Callable[[str], None], most: int | None = None
) -> dict[str, Any] | None:
    """Return the newest whole state of the run `identity`, of `most` steps at the most.

    Other files are skipped, with a line to `note`: damaged ones are removed; those with the right checksum
    that are not of this run are renamed, so that they neither count as its states nor are removed.
    """
    for path in _newest_first(folder):
        name = NAME.fullmatch(path.name)
        assert name is not None
        if most is not None and int(name[1]) > most:
            continue
        try:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except FileNotFoundError:  # another process of the run has removed it meanwhile
            continue
        if digest[:16] != name[2]:
            note(f"{path} is damaged and is left out")
            path.unlink(missing_ok=True)
            continue
        try:
            return _content(path, identity, STATE_FORMAT)
        except UnreadableError as error:
            note(f"{path} {error}: it is left out, as {path.name}{ASIDE}")
            with suppress(OSError):
                path.rename(f"{path}{ASIDE}")
    return None


def trained_state(path: Path, identity: str) -> dict[str, Any]:
    """Return the content of a run's final file, with `step`, `weights`, `validation_seconds` and `sums`.

    Raise UnreadableError, with a message that continues the file's name.
    """
    return _content(path, identity, FORMAT)


def _content(path: Path, identity: str, number: int) -> dict[str, Any]:
    try:
        content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        found, owner = content["format"], content["identity"]
    except Exception:  # any: the file holds no state
        raise DamagedError("holds no state of a run") from None
    if found != number:
        raise UnreadableError(f"has format {found}, which this version does not read")
    if owner != identity:
        raise UnreadableError("is a state of another run")
    return content


def remove_states(folder: Path) -> None:
    """Remove the states of a run that needs them no more, and their folder if nothing else is in it.

    Nothing is removed through a link: its target may hold other files.
    """
    if folder.is_symlink():
        return
    for path in _newest_first(folder):
        path.unlink(missing_ok=True)
    remove_unfinished(folder, is_state)
    with suppress(OSError):
        folder.rmdir()


def is_state(name: str) -> bool:
    """Whether a file has the name of a state."""
    return NAME.fullmatch(name) is not None


def _newest_first(folder: Path) -> list[Path]:
    plain = (path for path in folder.glob("*.pt") if path.is_file() and not path.is_symlink())
    names = {path: NAME.fullmatch(path.name) for path in plain}
    steps = {path: int(name[1]) for path, name in names.items() if name is not None}
    return sorted(steps, key=lambda path: (steps[path], path.stat().st_mtime_ns), reverse=True)
