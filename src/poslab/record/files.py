"""Write files that survive a crash, replaced atomically and sealed with their SHA-256; wait on a full disk.

CSV files are read only if their SHA-256 is right.
"""

import csv
import errno
import hashlib
import io
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from poslab.config.text import is_file_name
from poslab.record.schema import MANIFEST, TableSchema
from poslab.record.seal import DamagedError, sealed

FULL = (errno.ENOSPC, errno.EDQUOT)  # the errors of a full disk
UNFINISHED = re.compile(r"\.(?P<name>.+)\.[a-z0-9_]{8}")  # tempfile's name for what becomes the file `name`
ROOM = 1.0  # seconds between two attempts on a full disk

Content = str | bytes | Callable[[BinaryIO], object]  # a file's content, or a function that writes it
Name = Callable[[str], str]  # from a file's SHA-256 to its name
Tables = Mapping[str, bytes]  # the contents of CSV files, by name


def write_atomic(
    path: Path,
    content: Content,
    name: Name | None = None,
    waiting: Callable[[], None] = lambda: None,
    mode: int = 0o644,
) -> str:
    """Replace `path` atomically: write to a temporary file beside it, sync, rename, sync. Return the SHA-256.

    `content` may be a function that writes to a file. `name`, if given, maps the SHA-256 to the file's name,
    which replaces that of `path`. On a full disk, print a line and wait for room: the old file stays, and
    nothing is lost. While it waits, `waiting` is called every second; it may raise.
    """
    waited = removed = False
    while True:
        try:
            digest = replace_file(path, content, name, mode)
        except FileNotFoundError:
            if removed:  # the first time, another command may have removed the file as abandoned
                raise
            removed = True
        except OSError as error:
            if error.errno not in FULL:
                raise
            if not waited:
                _print(f"the disk is full: waiting for room to write {path}; Ctrl-C stops, nothing is lost")
            waited = True
            waiting()
            time.sleep(ROOM)
        else:
            if waited:
                _print(f"the disk has room again: {path} is written")
            return digest


def _print(line: str) -> None:
    with suppress(OSError):  # stderr may be a file on the same disk
        print(f"poslab: {line}", file=sys.stderr, flush=True)


def replace_file(path: Path, content: Content, name: Name | None = None, mode: int = 0o644) -> str:
    """Replace `path` as `write_atomic` does, but without waiting: raise OSError if the disk is full."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w+b") as file:
            if callable(content):
                content(file)
            else:
                file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
            file.seek(0)
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        os.chmod(temporary, mode)
        os.replace(temporary, path.with_name(name(digest)) if name else path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return digest


def write_sealed(path: Path, value: Mapping[str, Any]) -> None:
    """Write a sealed file, to be read with `read_sealed`."""
    write_atomic(path, sealed(value))


def remove_unfinished(folder: Path, is_own: Callable[[str], bool]) -> None:
    """Remove the unfinished files of killed processes in `folder`.

    Remove only plain files that `write_atomic` created for a name that `is_own` accepts, and none if the
    folder is a link. A process that is still writing such a file writes it again.
    """
    if folder.is_symlink():
        return
    for path in folder.glob(".*"):
        match = UNFINISHED.fullmatch(path.name)
        if match and is_own(match["name"]) and path.is_file() and not path.is_symlink():
            path.unlink(missing_ok=True)


def write_table(path: Path, columns: Iterable[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Write a CSV file with a header and return its SHA-256. Floats are read back to the same bits."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return write_atomic(path, text.getvalue())


def read_tables(directory: Path, digests: Mapping[str, str]) -> dict[str, bytes]:
    """Return the contents of a run's CSV files, by name; `digests` has their SHA-256 from its manifest.

    Raise DamagedError if a file is missing or damaged, or is outside the directory.
    """
    tables = {}
    for name, digest in digests.items():
        if not is_file_name(name):
            raise DamagedError(f"{MANIFEST} lists a file outside its folder")
        try:
            content = (directory / name).read_bytes()
        except OSError:
            raise DamagedError(f"{name} is missing") from None
        if hashlib.sha256(content).hexdigest() != digest:
            raise DamagedError(f"{name} is damaged")
        tables[name] = content
    return tables


def table_rows(tables: Tables, schema: TableSchema) -> list[dict[str, str]]:
    """Return the rows of a table as text; an optional column that the file lacks is empty.

    Raise DamagedError if the table is not in `tables` or lacks a required column.
    """
    name = schema.file
    if name not in tables:
        raise DamagedError(f"{MANIFEST} lists no {name}")
    reader = csv.reader(io.StringIO(tables[name].decode(), newline=""))
    header, *rows = [row for row in reader if row] or [[]]
    if absent := [column for column in schema.columns if column not in header]:
        raise DamagedError(f"{name} has no column {absent[0]}")
    lacking = [column for column in schema.optional if column not in header]
    columns, empty = [*header, *lacking], [""] * len(lacking)
    return [dict(zip(columns, row + empty, strict=True)) for row in rows]
