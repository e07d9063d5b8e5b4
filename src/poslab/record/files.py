"""Files that survive a crash: replaced in one step, sealed with their SHA-256, patient with a full disk."""

import csv
import errno
import hashlib
import io
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from poslab.config.schema import ConfigError

FULL = (errno.ENOSPC, errno.EDQUOT)  # the errors of a full disk
ROOM = 1.0  # seconds between two looks whether a full disk has room again
UNSEALED = "0" * 64


class DamagedError(ConfigError):
    """A file that is not as it was written; the message names it."""


def write_atomic(path: Path, content: str | bytes) -> None:
    """Replace `path` by `content` in one step that survives a crash: write beside, sync, rename, sync.

    On a full disk it says so and waits for room: what is there stays as it is, and nothing is lost.
    """
    data = content.encode() if isinstance(content, str) else content
    waited = False
    while True:
        try:
            _replace(path, data)
        except OSError as error:
            if error.errno not in FULL:
                raise
            if not waited:
                _say(f"the disk is full: {path} waits for room; Ctrl-C stops, and nothing is lost")
            waited = True
            time.sleep(ROOM)
        else:
            if waited:
                _say(f"the disk has room again: {path} is written")
            return


def _say(line: str) -> None:
    with suppress(OSError):  # where it goes to a file on the same disk
        print(f"poslab: {line}", file=sys.stderr, flush=True)


def _replace(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def sealed(value: Mapping[str, Any]) -> str:
    """JSON that ends with the SHA-256 of all its bytes, for which zeros stand while it is taken."""
    text = json.dumps({**value, "sha256": UNSEALED}, indent=2, ensure_ascii=False) + "\n"
    digest = hashlib.sha256(text.encode()).hexdigest()
    head, _, tail = text.rpartition(UNSEALED)
    return f"{head}{digest}{tail}"


def write_sealed(path: Path, value: Mapping[str, Any]) -> None:
    """Write what `read_sealed` reads."""
    write_atomic(path, sealed(value))


def read_sealed(path: Path) -> dict[str, Any]:
    """The value of a `sealed` file. Raises FileNotFoundError, and DamagedError where a bit is not right."""
    return unsealed(path.read_bytes(), path)


def unsealed(data: bytes, path: Path) -> dict[str, Any]:
    """The value of a `sealed` text that is to be at `path`. Raises DamagedError."""
    found = re.search(rb'"sha256": "([0-9a-f]{64})"\n\}\n$', data)
    if found is not None:
        begin, end = found.span(1)
        if hashlib.sha256(data[:begin] + UNSEALED.encode() + data[end:]).hexdigest().encode() == found[1]:
            value: dict[str, Any] = json.loads(data)
            value.pop("sha256")
            return value
    raise DamagedError(f"{path} is damaged")


def write_table(path: Path, columns: Iterable[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """A CSV with a header; floats are written so that reading gives back the same bits. Its SHA-256."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomic(path, text.getvalue())
    return hashlib.sha256(text.getvalue().encode()).hexdigest()
