"""The files with a run's weights: states to resume from, and the final weights.

    <run>/checkpoints/00000400-5f2b1c0d9e8a7766.pt     the step and the first digits of the file's SHA-256
    <run>/checkpoint.pt                                the final weights; their SHA-256 is in the manifest

Files are written atomically and verified when they are read. The checksum of a state is in its name: in a
separate file, a crash could leave one without the other.
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

FORMAT = 2  # the format of the final weights
STATE_FORMAT = 3  # the format of a state: Lightning's checkpoint
STATES = 2  # the number of states per run: if the newest is damaged, the run resumes from the other
NAME = re.compile(r"(\d{8,})-([0-9a-f]{16})\.pt")

# Both kinds of files have the format, the run's identity, its settings (`config`), PyTorch's number of
# `threads`, the `rows` of metrics.csv so far, and the `kernel` of the attention.


def writer(content: Mapping[str, Any]) -> Callable[[BinaryIO], None]:
    """Return a function that writes `content`: tensors and plain values only, to load with weights_only=True.

    An error of the file, such as a full disk, is raised unchanged.
    """

    def write(file: BinaryIO) -> None:
        try:
            torch.save(dict(content), file)
        except RuntimeError as error:  # torch.save then finds the file too short; its context is the cause
            if isinstance(error.__context__, OSError):
                raise error.__context__ from None
            raise

    return write


def write_checkpoint(
    folder: Path, step: int, content: Mapping[str, Any], waiting: Callable[[], None] = lambda: None
) -> None:
    """Write a state of tensors and plain values, and remove all but the newest STATES.

    `waiting` is called while the disk is full; it may raise.
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
    """Return the newest intact state of the run `identity`, with at most `most` steps; None without one.

    Bad files are skipped, with a line to `note`. Damaged ones are removed.
    """
    for path in _newest_first(folder):
        name = NAME.fullmatch(path.name)
        assert name is not None
        if most is not None and int(name[1]) > most:
            continue
        try:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except FileNotFoundError:  # another process of the run has just removed it
            continue
        if digest[:16] != name[2]:
            note(f"{path} is damaged and is removed")
            path.unlink(missing_ok=True)
            continue
        try:
            return _content(path, identity, STATE_FORMAT)
        except UnreadableError as error:
            note(f"{path} {error}: it is skipped")
    return None


def trained_state(path: Path, identity: str) -> dict[str, Any]:
    """Return the content of a run's final file, with `step`, `weights`, `validation_seconds` and `sums`.

    Raise UnreadableError, with a message to put after the file's name.
    """
    return _content(path, identity, FORMAT)


def _content(path: Path, identity: str, number: int) -> dict[str, Any]:
    try:
        content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        format_number, owner = content["format"], content["identity"]
    except Exception:  # of any kind: the file is not a state
        raise DamagedError("is not a state of a run") from None
    if format_number != number:
        raise UnreadableError(f"has format {format_number}, which this version does not read")
    if owner != identity:
        raise UnreadableError("is a state of another run")
    return content


def remove_states(folder: Path) -> None:
    """Remove the states of a run that no longer needs them, and their folder if it is then empty."""
    for path in _newest_first(folder):
        path.unlink(missing_ok=True)
    remove_unfinished(folder, is_state)
    with suppress(OSError):
        folder.rmdir()


def is_state(name: str) -> bool:
    """Return whether a file has the name of a state."""
    return NAME.fullmatch(name) is not None


def _newest_first(folder: Path) -> list[Path]:
    names = {path: NAME.fullmatch(path.name) for path in folder.glob("*.pt") if path.is_file()}
    steps = {path: int(name[1]) for path, name in names.items() if name is not None}
    return sorted(steps, key=lambda path: (steps[path], path.stat().st_mtime_ns), reverse=True)
