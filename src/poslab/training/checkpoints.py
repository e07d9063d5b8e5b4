"""The files of a run's weights: states that it resumes from, and the final weights that it leaves.

    <run>/checkpoints/00000400-5f2b1c0d9e8a7766.pt     the step, and the first digits of the content's SHA-256
    <run>/checkpoint.pt                                the final weights, whose SHA-256 is in the manifest

Files are written whole or not at all and checked when they are read. A state's name holds its checksum: a
second file for it could be lost in a crash between the two.
"""

import hashlib
import io
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from poslab.record.files import remove_unfinished, write_atomic
from poslab.record.seal import DamagedError, UnreadableError

FORMAT = 2  # of the final weights
STATE_FORMAT = 3  # of a state: Lightning's checkpoint, with what says whose it is
STATES = 2  # of a run: should the newest be damaged, there is the one before
NAME = re.compile(r"(\d{8,})-([0-9a-f]{16})\.pt")
ASIDE = ".other"  # behind the name of a file that is named as a state but is of another run

# Beside whose a file is (format, identity), in both kinds: the settings, PyTorch's threads, the rows of
# metrics.csv so far, and the kernel of the attention.
FACTS = {"config", "threads", "rows", "kernel"}
STATE_KEYS = {
    "global_step",
    "state_dict",
    "optimizer_states",
    "lr_schedulers",
    "loops",
    "callbacks",
    "sums",
}


def to_bytes(content: Mapping[str, Any]) -> bytes:
    """`content` is tensors and plain values only, so that loading with weights_only=True is enough."""
    buffer = io.BytesIO()
    torch.save(dict(content), buffer)
    return buffer.getvalue()


def from_bytes(data: bytes) -> dict[str, Any]:
    """The content that `to_bytes` was given, tensors on the CPU. Unpickles tensors and plain values only."""
    return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)


def write_checkpoint(folder: Path, step: int, content: Mapping[str, Any]) -> None:
    """Add a state of tensors and plain values, and remove all but the newest STATES."""
    data = to_bytes(content)
    path = folder / f"{step:08d}-{hashlib.sha256(data).hexdigest()[:16]}.pt"
    write_atomic(path, data)
    others = [older for older in _newest_first(folder) if older != path]
    for old in others[STATES - 1 :]:
        old.unlink(missing_ok=True)


def newest_checkpoint(folder: Path, identity: str, note: Callable[[str], None]) -> dict[str, Any] | None:
    """The newest whole state of the run `identity`.

    Others are left out, with a line to `note`: damaged ones are removed, and those whose checksum is right
    but which are not of this run get another name: they neither count as its states nor are removed.
    """
    for path in _newest_first(folder):
        name = NAME.fullmatch(path.name)
        assert name is not None
        try:
            data = path.read_bytes()
        except FileNotFoundError:  # another of the run's processes has left it out meanwhile
            continue
        if hashlib.sha256(data).hexdigest()[:16] != name[2]:
            note(f"{path} is damaged and is left out")
            path.unlink(missing_ok=True)
            continue
        try:
            state = _content(data, identity, STATE_FORMAT, STATE_KEYS)
            if state["global_step"] == int(name[1]):
                return state
            raise DamagedError(f"is the state after step {state['global_step']}")
        except UnreadableError as error:
            note(f"{path} {error}: it is left out, as {path.name}{ASIDE}")
            with suppress(OSError):
                path.rename(f"{path}{ASIDE}")
    return None


def trained_state(data: bytes, identity: str) -> dict[str, Any]:
    """What the final weights' file of a run holds: FACTS, `step`, `weights`, `validation_seconds`, `sums`.

    Raises UnreadableError, whose message continues the file's name.
    """
    return _content(data, identity, FORMAT, {"step", "weights", "validation_seconds", "sums"})


def _content(data: bytes, identity: str, number: int, keys: set[str]) -> dict[str, Any]:
    try:
        content = from_bytes(data)
        found, owner = content["format"], content["identity"]
    except Exception:  # whatever it is, no state is in it
        raise DamagedError("holds no state of a run") from None
    if found != number:
        raise UnreadableError(f"has format {found}, which this version does not read")
    if owner != identity:
        raise UnreadableError("is a state of another run")
    if not content.keys() >= FACTS | keys:
        raise DamagedError("lacks a part of the state of its run")
    return content


def remove_states(folder: Path) -> None:
    """Remove the states of a run that needs them no more, and their folder if nothing else is in it.

    Nothing is removed through a link: whoever has made one knows what else lies there.
    """
    if folder.is_symlink():
        return
    for path in _newest_first(folder):
        path.unlink(missing_ok=True)
    remove_unfinished(folder, is_state)
    with suppress(OSError):
        folder.rmdir()


def is_state(name: str) -> bool:
    """Whether a file is called as a state is."""
    return NAME.fullmatch(name) is not None


def _newest_first(folder: Path) -> list[Path]:
    plain = (path for path in folder.glob("*.pt") if path.is_file() and not path.is_symlink())
    names = {path: NAME.fullmatch(path.name) for path in plain}
    steps = {path: int(name[1]) for path, name in names.items() if name is not None}
    return sorted(steps, key=lambda path: (steps[path], path.stat().st_mtime_ns), reverse=True)
