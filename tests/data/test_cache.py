"""Prepared data are read again, repaired and shared by processes."""

import errno
import fcntl
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from poslab.config.schema import ConfigError
from poslab.data.cache import prepare


def cut(path):
    path.write_bytes(path.read_bytes()[:100])


def flip(path):
    path.write_bytes(b"!" + path.read_bytes()[1:])


def unreadable(path):
    """Replace the file by one that can be opened but not read, or by a dangling link."""
    path.unlink()
    path.symlink_to("/proc/self/mem")


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("train.bin", Path.unlink),
        ("train.bin", cut),
        ("train.bin", flip),
        ("train.bin", unreadable),
        ("manifest.json", flip),
        ("manifest.json", Path.unlink),
    ],
)
def test_changed_prepared_data_are_named_and_written_again(data, name, damage, capsys):
    first = prepare(data)
    content = first.decode(first.train)
    assert capsys.readouterr().err == ""
    damage(first.directory / name)
    again = prepare(data)
    assert again.describe() == first.describe()
    assert again.decode(again.train) == content
    line = capsys.readouterr().err
    assert f"{first.directory / name} " in line
    assert line.endswith("the text is prepared again\n")


def test_only_unfinished_folders_are_removed(data, tmp_path):
    root = tmp_path / "cache" / "data"
    mine = root / f"{'0' * 32}.{'1' * 8}.unfinished"
    others = [root / "notes.unfinished", root / ".unfinished", tmp_path / "linked"]
    for path in (mine, *others):
        path.mkdir(parents=True)
        (path / "train.bin").write_text("x")
        os.utime(path, (1, 1))
    linked = root / f"{'0' * 32}.{'2' * 8}.unfinished"
    linked.symlink_to(tmp_path / "linked")
    prepare(data)
    assert not mine.exists()
    assert all((path / "train.bin").exists() for path in (*others, linked))


def test_processes_may_prepare_the_same_text_at_once(data):
    with ThreadPoolExecutor(6) as pool:
        corpora = list(pool.map(prepare, [data] * 6))
    assert len({(corpus.fingerprint, bytes(corpus.train)) for corpus in corpora}) == 1
    assert not list(corpora[0].directory.parent.glob("*.unfinished"))


def test_a_cache_that_cannot_be_locked_or_written_is_named(data, tmp_path, monkeypatch):
    def refuse(file: int, kind: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", refuse)
        with pytest.raises(ConfigError, match="No locks available; set POSLAB_CACHE"):
            prepare(data)
    (tmp_path / "occupied").write_text("")
    monkeypatch.setenv("POSLAB_CACHE", str(tmp_path / "occupied"))
    with pytest.raises(ConfigError, match=r"cannot write prepared data to .*; set POSLAB_CACHE"):
        prepare(data)
