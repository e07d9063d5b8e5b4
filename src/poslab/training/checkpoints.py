"""States of a run that it can go on from: written whole or not at all, checked when they are read.

    <run>/checkpoints/00000400-5f2b1c0d9e8a7766.pt     the step, and the first digits of the content's SHA-256

A name that holds the checksum needs no second file beside it, which a crash could part from the first.
"""

import hashlib
import io
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from poslab.record.files import write_atomic

FORMAT = 2  # of what a checkpoint holds
KEPT = 2
NAME = re.compile(r"(\d{8,})-([0-9a-f]{16})\.pt")


def packed(content: Mapping[str, Any]) -> bytes:
    """Tensors and plain values only, so that loading with weights_only=True is enough."""
    buffer = io.BytesIO()
    torch.save(dict(content), buffer)
    return buffer.getvalue()


def unpacked(data: bytes) -> dict[str, Any]:
    """What `packed` packed, tensors on the CPU. Nothing is unpickled but tensors and plain values."""
    content: dict[str, Any] = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    return content


def write_checkpoint(folder: Path, step: int, content: Mapping[str, Any]) -> None:
    """Add a state, and remove all but the newest ones. `content` is tensors and plain values."""
    data = packed(content)
    path = folder / f"{step:08d}-{hashlib.sha256(data).hexdigest()[:16]}.pt"
    write_atomic(path, data)
    others = [older for older in _newest_first(folder) if older != path]
    for old in others[KEPT - 1 :]:
        old.unlink(missing_ok=True)


def newest_checkpoint(folder: Path, identity: str, say: Callable[[str], None]) -> dict[str, Any] | None:
    """The newest state of the run `identity` that is as it was written; `say` is told of each that is not."""
    for path in _newest_first(folder):
        data = path.read_bytes()
        named = NAME.fullmatch(path.name)
        assert named is not None
        if hashlib.sha256(data).hexdigest()[:16] != named[2]:
            say(f"{path} is damaged and is left out")
            path.unlink(missing_ok=True)
            continue
        content = unpacked(data)
        if content.get("identity") == identity and content.get("format") == FORMAT:
            return content
    return None


def _newest_first(folder: Path) -> list[Path]:
    found = {path: NAME.fullmatch(path.name) for path in folder.glob("*.pt")}
    steps = {path: int(named[1]) for path, named in found.items() if named is not None}
    return sorted(steps, key=lambda path: (steps[path], path.stat().st_mtime_ns), reverse=True)
