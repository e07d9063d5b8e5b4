"""Texts are prepared on all cores, in bounded memory, and resumed after a kill."""

import itertools
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from poslab.config.schema import ConfigError
from poslab.data import build
from poslab.data.cache import prepare
from poslab.data.directories import cache_directory
from poslab.data.sources import text
from poslab.record.seal import read_sealed
from support.commands import python
from support.records import contents
from support.texts import ODD, options, trained_tokenizer, words, write_documents

SMALL = 2_000  # bytes per shard, so that a text has several


def killed_after(shards: int, data: dict[str, Any]) -> Path:
    """Prepare a text in a process that is killed after so many shards; return the files that it leaves."""
    if (child := os.fork()) == 0:
        os.environ["TOKENIZERS_PARALLELISM"] = "false"  # this process has no threads of the library
        written, append = itertools.count(1), build.Parts.append

        def append_and_die(self: build.Parts, *arguments: Any) -> None:
            append(self, *arguments)
            if next(written) == shards:
                os.kill(os.getpid(), signal.SIGKILL)

        build.Parts.append = append_and_die  # type: ignore[method-assign]
        build.SHARD, build.SYNCED = SMALL, 0.0
        try:
            prepare(data)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    (left,) = cache_directory().glob("*.unfinished")
    return left


@pytest.mark.parametrize(
    ("source", "vocabulary"),
    [("files", 300), ("one file", "mine"), ("one file", "bytes"), ("pinned", "bytes")],
)
def test_a_killed_preparation_resumes_to_the_same_fingerprint(
    source, vocabulary, tmp_path, novels, monkeypatch
):
    """It is written in shards; the text that it is compared with is written at once."""
    (novels / "odd.txt").write_text(ODD * 30)
    path = novels
    if source == "one file":
        monkeypatch.setattr("poslab.data.tokens.CHUNK", 1_000)
        path = tmp_path / "one.txt"
        path.write_bytes(b"\n".join(file.read_bytes() for file in sorted(novels.iterdir())))
    if vocabulary == "mine":
        vocabulary = str(trained_tokenizer(tmp_path / "mine.json", [words(300, 1)]))
    monkeypatch.setattr(text.Source, "pinned", source == "pinned")
    data = options("text", path=str(path), vocabulary=vocabulary)
    whole = prepare(data)
    monkeypatch.setenv("POSLAB_CACHE", str(tmp_path / "killed"))
    for _ in range(2):  # killed again while resuming
        left = killed_after(3, data)
    monkeypatch.setattr(build, "SHARD", SMALL)
    written, append = [], build.Parts.append

    def counting(self, pieces, *arguments):
        written.extend(len(piece.text) for piece in pieces)
        append(self, pieces, *arguments)

    monkeypatch.setattr(build.Parts, "append", counting)
    resumed = prepare(data)
    assert resumed.fingerprint == whole.fingerprint
    total = sum(file.stat().st_size for file in ([path] if path.is_file() else path.iterdir()))
    assert sum(written) <= total - 6 * SMALL  # finished shards are not encoded again
    assert contents(resumed.directory).keys() == contents(whole.directory).keys()
    assert not left.exists()


def test_an_error_of_encoding_or_training_is_raised_and_leaves_no_files(tmp_path, novels, data, monkeypatch):
    (novels / "00.txt").write_text("The Whale " * 99)
    monkeypatch.setattr(build, "SHARD", SMALL)
    path = trained_tokenizer(tmp_path / "lower.json", [words(300, 1)])
    path.write_text(json.dumps({**json.loads(path.read_text()), "normalizer": {"type": "Lowercase"}}))
    with pytest.raises(ConfigError, match="changes text"):
        prepare({**data, "vocabulary": str(path)})
    with pytest.raises(
        ConfigError, match=r"vocabulary=5000 is more than this text allows: use at most \d{3} "
    ):
        prepare({**data, "vocabulary": 5000})
    assert not list((tmp_path / "cache" / "data").glob("*.unfinished"))


MEASURED = """
import json, resource, sys
from poslab.data.cache import prepare

before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
prepare(json.loads(sys.argv[1]))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in other units")
@pytest.mark.parametrize("form", ["one document", "rows"])
def test_memory_is_bounded_for_any_text(form, tmp_path):
    block = words(20_000, 1)
    path = tmp_path / ("text.txt" if form == "one document" else "text.jsonl")
    with path.open("w") as file:
        for number in range(1_000):
            document = f"{number} {block}\n"
            file.write(document if form == "one document" else json.dumps({"text": document}) + "\n")
    size = path.stat().st_size
    assert size > 90_000_000
    ended = python("-c", MEASURED, json.dumps(options("text", path=str(path))), cwd=tmp_path)
    assert int(ended.stdout) * 1024 < 0.8 * size


# Remembered files


@pytest.mark.parametrize("form", ["folder", "file", "rows"])
def test_prepared_files_are_recognised_without_reading_them(form, tmp_path, novels, monkeypatch):
    if form == "rows":
        (tmp_path / "rows.jsonl").write_text("\n".join(json.dumps({"text": words(90, n)}) for n in range(30)))
    path = {"folder": novels, "file": novels / "00.txt", "rows": tmp_path / "rows.jsonl"}[form]
    data = options("text", path=str(path))
    first = prepare(data).fingerprint
    with monkeypatch.context() as patched:
        patched.setattr(text.Source, "read", None)
        patched.setattr("poslab.data.cache.write", None)
        assert prepare(data).fingerprint == first


@pytest.mark.parametrize("change", ["the content", "added", "removed"])
def test_a_file_that_changed_is_read_again(change, novels, data):
    first = prepare(data).fingerprint
    path = novels / "07.txt"
    if change == "added":
        (novels / "added.txt").write_text("another document")
    elif change == "removed":
        path.unlink()
    else:  # of the same size, with the same time stamp
        state = path.stat()
        path.write_bytes(b"!" + path.read_bytes()[1:])
        os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert prepare(data).fingerprint != first


def test_a_source_that_changes_while_it_is_read_is_refused(novels, data, monkeypatch):
    make_plan = build._make_plan

    def changed(*arguments):
        (novels / "07.txt").write_text("another text")
        return make_plan(*arguments)

    monkeypatch.setattr(build, "_make_plan", changed)
    with pytest.raises(ConfigError, match="changed while it was read"):
        prepare(data)


def test_a_large_file_gives_the_same_tokens_as_read_at_once(tmp_path, monkeypatch):
    path = tmp_path / "one.txt"
    path.write_bytes(b"\xef\xbb\xbf" + f"{ODD}字\n".encode() * 40)
    data = options("text", path=str(path), vocabulary=300)
    first = prepare(data).fingerprint
    monkeypatch.setattr(text, "LARGE", 100)
    monkeypatch.setattr(text, "PIECE", 64)  # cuts characters
    monkeypatch.setenv("POSLAB_CACHE", str(tmp_path / "another"))
    assert prepare(data).fingerprint == first
    content = path.read_bytes()
    for position in (500, 575, 576, 577):
        path.write_bytes(content[:position] + b"\xff" + content[position:])
        with pytest.raises(ConfigError, match="is not UTF-8") as large:
            prepare(data)
        with monkeypatch.context() as patched:
            patched.setattr(text, "LARGE", 10**9)
            with pytest.raises(ConfigError) as whole:
                prepare(data)
        assert str(large.value) == str(whole.value)


# The held-out share


@pytest.mark.parametrize("held_out", [0.3, "3kB", "0.003MB"])
def test_the_requested_share_is_held_out(held_out, tmp_path):
    path = write_documents(tmp_path / "texts", 200, size=60)
    corpus = prepare(options("text", path=str(path), held_out=held_out))
    total = len(corpus.train) + len(corpus.validation)
    wanted = 3_000 if isinstance(held_out, str) else held_out * total
    held = int(corpus.token_bytes[corpus.validation].sum()) - len(corpus.validation_documents) + 1
    assert wanted <= held <= wanted + 1_000  # whole documents of about 300 bytes
    assert corpus.documents == 200


def test_another_held_out_share_is_another_text_but_the_default_is_not(data):
    default, another = prepare(data), prepare({**data, "held_out": 0.3})
    assert prepare({**data, "held_out": 0.1}).directory == default.directory
    assert prepare({**data, "windows": "within"}).directory == default.directory  # the places of windows
    assert another.fingerprint != default.fingerprint
    assert "held_out" not in json.dumps(read_sealed(default.directory / "manifest.json"))


def test_more_than_half_of_a_text_cannot_be_held_out(data):
    with pytest.raises(ConfigError, match="is over half of the text"):
        prepare({**data, "held_out": "1GB"})
