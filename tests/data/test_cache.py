"""Prepared data are read again, repaired and shared by processes."""

import errno
import fcntl
import os
import platform
import shutil
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from poslab.config.schema import ConfigError
from poslab.data import verification
from poslab.data.build import build
from poslab.data.cache import prepare
from poslab.record.seal import read_sealed, sealed
from support.texts import options, write_documents


@pytest.mark.parametrize("damage", ["truncate", "flip", "remove", "manifest"])
def test_damaged_cache_is_named_and_made_again(novels, damage, capsys):
    first = prepare(options("text", path=str(novels)))
    content = first.decode(first.train)
    path = first.directory / ("manifest.json" if damage == "manifest" else "train.bin")
    assert capsys.readouterr().err == ""
    if damage == "remove":
        path.unlink()
    else:
        whole = path.read_bytes()
        path.write_bytes(b"!" + whole[1:] if damage == "flip" else whole[:100])
    again = prepare(options("text", path=str(novels)))
    assert again.fingerprint == first.fingerprint
    assert again.decode(again.train) == content
    line = capsys.readouterr().err
    assert f"{path} is " in line
    assert line.endswith("the text is prepared again\n")


def test_a_corpus_is_verified_when_it_is_written_and_after_each_change(novels, monkeypatch):
    digests, verified = verification.block_digests, []
    monkeypatch.setattr(verification, "BLOCK", 1000)
    first = prepare(options("text", path=str(novels)))
    monkeypatch.setattr(
        verification, "block_digests", lambda *given: verified.append(given) or digests(*given)
    )
    path = first.directory / "train.bin"

    def replaced():
        """Another inode, the same bytes."""
        shutil.copy2(path, path.with_suffix(".new"))
        path.with_suffix(".new").rename(path)

    for change in (
        lambda: os.utime(path, ns=(1, 1)),
        replaced,
        lambda: monkeypatch.setattr(platform, "node", lambda: "another"),
    ):
        assert prepare(options("text", path=str(novels))).fingerprint == first.fingerprint
        assert verified == []
        change()
        assert prepare(options("text", path=str(novels))).fingerprint == first.fingerprint
        assert len(verified) == 1
        verified.clear()


@pytest.mark.parametrize(
    ("field", "value"), [("vocabulary", 756), ("separator", 1), ("dtype", "<u2"), ("documents", 7)]
)
def test_what_says_how_to_read_the_tokens_is_in_the_fingerprint(novels, field, value, capsys):
    first = prepare(options("text", path=str(novels)))
    path = first.directory / "manifest.json"
    path.write_text(sealed({**read_sealed(path), field: value}))
    again = prepare(options("text", path=str(novels)))
    assert (again.vocabulary, again.fingerprint) == (256, first.fingerprint)
    assert f"{path} " in capsys.readouterr().err


def test_prepared_data_of_another_text_are_not_read(novels, tmp_path, capsys):
    first = prepare(options("text", path=str(novels)))
    other = prepare(options("text", path=str(write_documents(tmp_path / "others", 11))))
    shutil.rmtree(first.directory)
    shutil.copytree(other.directory, first.directory)
    assert prepare(options("text", path=str(novels))).fingerprint == first.fingerprint
    assert f"{first.directory / 'manifest.json'} is of another text" in capsys.readouterr().err


def test_only_folders_that_were_left_unfinished_are_removed(novels, tmp_path):
    root = tmp_path / "cache" / "data"
    mine = root / f"{'0' * 32}.{'1' * 8}.unfinished"
    others = [root / "notes.unfinished", root / ".unfinished", tmp_path / "linked"]
    for path in (mine, *others):
        path.mkdir(parents=True)
        (path / "train.bin").write_text("x")
    linked = root / f"{'0' * 32}.{'2' * 8}.unfinished"
    linked.symlink_to(tmp_path / "linked")
    for path in (mine, *others):
        os.utime(path, (1, 1))
    prepare(options("text", path=str(novels)))
    assert not mine.exists()
    assert all((path / "train.bin").exists() for path in (*others, linked))


def test_several_may_prepare_the_same_at_once(novels):
    with ThreadPoolExecutor(6) as pool:
        corpora = list(pool.map(prepare, [options("text", path=str(novels))] * 6))
    assert len({corpus.fingerprint for corpus in corpora}) == 1
    assert len({bytes(corpus.train) for corpus in corpora}) == 1
    assert not list(corpora[0].directory.parent.glob("*.unfinished"))


def test_a_drive_without_locks_is_told(novels, monkeypatch):
    def refuse(file: int, kind: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(ConfigError, match=r"prepared data to .*: No locks available; set POSLAB_CACHE"):
        prepare(options("text", path=str(novels)))


def test_of_two_machines_whose_locks_do_not_meet_the_first_to_end_counts(novels, monkeypatch):
    data = options("text", path=str(novels))

    def second(*arguments: Any) -> None:
        monkeypatch.setattr("poslab.data.unfinished.build", build)
        with monkeypatch.context() as patched:
            patched.setattr(platform, "node", lambda: "another")
            patched.setattr(fcntl, "flock", lambda file, kind: None)
            prepare(data)
        build(*arguments)

    monkeypatch.setattr("poslab.data.unfinished.build", second)
    corpus = prepare(data)
    assert not list(corpus.directory.parent.glob("*.unfinished"))


def test_cache_that_cannot_be_written_is_told(novels, tmp_path, monkeypatch):
    (tmp_path / "occupied").write_text("")
    monkeypatch.setenv("POSLAB_CACHE", str(tmp_path / "occupied"))
    with pytest.raises(ConfigError, match=r"cannot write prepared data to .*; set POSLAB_CACHE"):
        prepare(options("text", path=str(novels)))
