"""Files that survive a crash: replaced in one step, sealed with their SHA-256, patient with a full disk.

And CSV files that are read only where their SHA-256 is right.
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
UNFINISHED = re.compile(r"\.(?P<name>.+)\.[a-z0-9_]{8}")  # tempfile's name of the later file `name`
ROOM = 1.0  # seconds between two tries whether a full disk has room again

Content = str | bytes | Callable[[BinaryIO], object]  # of a file, or what writes it
Name = Callable[[str], str]  # of a file, by its SHA-256
Tables = Mapping[str, bytes]  # the contents of CSV files, by name


def write_atomic(
    path: Path,
    content: Content,
    name: Name | None = None,
    waiting: Callable[[], None] = lambda: None,
    mode: int = 0o644,
) -> str:
    """Replace `path` in one step that survives a crash: write beside, sync, rename, sync. Return the SHA-256.

    `content` may be a function that writes it to a file. `name` gives the file's name by its SHA-256, in
    place of that of `path`. On a full disk it prints a line and waits for room: the old file stays, and
    nothing is lost. `waiting` is called meanwhile, each second, and may raise.
    """
    waited = removed = False
    while True:
        try:
            digest = replace_file(path, content, name, mode)
        except FileNotFoundError:
            if removed:  # the first time, another command has removed the unfinished file as left behind
                raise
            removed = True
        except OSError as error:
            if error.errno not in FULL:
                raise
            if not waited:
                _print(f"the disk is full: {path} waits for room; Ctrl-C stops, and nothing is lost")
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
    """Replace `path` as `write_atomic` does, at once: raise OSError also where the disk is full."""
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
    """Write a sealed file, which `read_sealed` reads."""
    write_atomic(path, sealed(value))


def remove_unfinished(folder: Path, is_own: Callable[[str], bool]) -> None:
    """Remove the unfinished files of killed processes in `folder`.

    Only plain files with a name of `write_atomic` for a file that `is_own`; none where the folder is a link.
    A process that is writing such a file writes it again.
    """
    if folder.is_symlink():
        return
    for path in folder.glob(".*"):
        match = UNFINISHED.fullmatch(path.name)
        if match and is_own(match["name"]) and path.is_file() and not path.is_symlink():
            path.unlink(missing_ok=True)


def write_table(path: Path, columns: Iterable[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Write a CSV with a header, and floats that are read back to the same bits; return its SHA-256."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return write_atomic(path, text.getvalue())


def read_tables(directory: Path, digests: Mapping[str, str]) -> dict[str, bytes]:
    """Return the contents of a run's CSV files, by name; `digests` are their SHA-256 in its manifest.

    Raise DamagedError where a file is missing or damaged, or lies outside the directory.
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

    Raise DamagedError where the table is not among `tables`, lacks a required column or has a broken row.
    """
    name = schema.file
    if name not in tables:
        raise DamagedError(f"{MANIFEST} lists no {name}")
    reader = csv.reader(io.StringIO(tables[name].decode(), newline=""), strict=True)
    header, *rows = [row for row in reader if row] or [[]]
    if absent := [column for column in schema.columns if column not in header]:
        raise DamagedError(f"{name} has no column {absent[0]}")
    if any(len(row) != len(header) for row in rows):
        raise DamagedError(f"{name} has a broken row")
    lacking = [column for column in schema.optional if column not in header]
    columns, empty = [*header, *lacking], [""] * len(lacking)
    return [dict(zip(columns, row + empty, strict=True)) for row in rows]
