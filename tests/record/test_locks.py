"""On a file system without locks, the error of every kind of lock names the path and a remedy."""

import errno
import fcntl
import tempfile

import pytest

from poslab.config.text import error_text
from poslab.record.locks import file_lock, is_taken
from poslab.study.launch.leases import lease_cores
from poslab.study.launch.machine import cores


def test_a_file_system_without_locks_is_named(tmp_path, monkeypatch):
    def refuse(file: int, kind: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    path = tmp_path / "lock"
    path.touch()
    monkeypatch.setattr(fcntl, "flock", refuse)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    records = "keep the records on a local disk"
    for act, way_out, where in (
        (lambda: file_lock(path).__enter__(), records, path),
        (lambda: is_taken(path), records, path),
        (lambda: lease_cores(1), "set TMPDIR to a folder on a local disk", f"core-{cores()[0]}"),
    ):
        with pytest.raises(OSError, match="its file system has no file locks") as raised:
            act()
        line = error_text(raised.value)
        assert way_out in line
        assert line.endswith(str(where))
        assert raised.value.errno == errno.ENOLCK
