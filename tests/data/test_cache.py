"""Prepared data are read again, repaired and shared by processes."""

import contextlib
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from poslab.config.schema import ConfigError
from poslab.data import cache
from poslab.data.cache import prepare
from support.texts import options


def test_second_time_is_read_from_the_cache(novels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = prepare(options("text", path=str(novels)))
    monkeypatch.setattr(cache, "_build", None)
    assert prepare(options("text", path=str(novels))).fingerprint == first.fingerprint
    assert not list(first.directory.parent.glob("*.unfinished"))


@pytest.mark.parametrize("damage", ["truncate", "flip", "remove", "manifest"])
def test_damaged_cache_is_made_again(novels: Path, damage: str) -> None:
    first = prepare(options("text", path=str(novels)))
    content = first.decode(first.train)
    path = first.directory / ("manifest.json" if damage == "manifest" else "train.bin")
    if damage == "remove":
        path.unlink()
    else:
        whole = path.read_bytes()
        path.write_bytes(b"!" + whole[1:] if damage == "flip" else whole[:100])
    again = prepare(options("text", path=str(novels)))
    assert again.fingerprint == first.fingerprint
    assert again.decode(again.train) == content


@pytest.mark.parametrize("locks", [True, False])
def test_several_may_prepare_the_same_at_once(
    novels: Path, monkeypatch: pytest.MonkeyPatch, locks: bool
) -> None:
    if not locks:
        monkeypatch.setattr(cache, "_one_at_a_time", lambda path: contextlib.nullcontext())
    with ThreadPoolExecutor(6) as pool:
        corpora = list(pool.map(prepare, [options("text", path=str(novels))] * 6))
    assert len({corpus.fingerprint for corpus in corpora}) == 1
    assert len({bytes(corpus.train) for corpus in corpora}) == 1
    assert not list(corpora[0].directory.parent.glob("*.unfinished"))


def test_cache_that_cannot_be_written_is_told(
    novels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "occupied").write_text("")
    monkeypatch.setenv("POSLAB_CACHE", str(tmp_path / "occupied"))
    with pytest.raises(ConfigError, match=r"cannot write prepared data to .*; set POSLAB_CACHE"):
        prepare(options("text", path=str(novels)))


def test_a_worker_maps_the_same_files(novels: Path) -> None:
    corpus = prepare(options("text", path=str(novels)))
    sent = pickle.dumps(corpus)
    assert len(sent) < 1000
    received = pickle.loads(sent)
    assert isinstance(received.train, np.memmap)
    assert received.describe() == corpus.describe()
    assert set(corpus.describe()) == {
        "name", "fingerprint", "vocabulary", "train_tokens", "validation_tokens", "documents"
    }  # fmt: skip
