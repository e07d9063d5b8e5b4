"""Sources of text: files, the standard library and the hub give the same text each time; errors help."""

import contextlib
import gzip
import hashlib
from typing import Any

import pytest

from poslab.config.schema import ConfigError
from poslab.data import sources
from poslab.data.cache import prepare
from poslab.data.sources import hub
from support.texts import documents, options, words


def test_standard_library_is_real_python_without_tests():
    read = list(sources.find(options("stdlib")).read())
    assert sum(map(len, read)) > 5e6
    assert any(b"class ArgumentParser(" in document for document in read)
    assert not any(b"class TestCase(unittest" in document for document in read)


def test_gzip_is_recognised_by_content_and_equal_content_has_one_fingerprint(tmp_path):
    text = words(3000, seed=1).encode()
    (tmp_path / "plain.txt").write_bytes(text)
    (tmp_path / "marked.txt").write_bytes(b"\xef\xbb\xbf" + text)  # a byte order mark is not text
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "zipped").write_bytes(gzip.compress(text))
    paths = [tmp_path / name for name in ("plain.txt", "marked.txt", "elsewhere/zipped")]
    plain, *others = (prepare(options("text", path=str(path))) for path in paths)
    assert {other.fingerprint for other in others} == {plain.fingerprint}
    assert [other.name for other in (plain, *others)] == ["plain.txt", "marked.txt", "zipped"]
    assert plain.decode(plain.train) + plain.decode(plain.validation) == text


def test_directory_is_searched_for_text_files_only(tmp_path):
    root = tmp_path / "texts"
    (root / "deep" / "er").mkdir(parents=True)
    (root / ".git").mkdir()
    (root / ".git" / "hidden.txt").write_text("hidden")
    (root / "b.txt").write_text("second" * 50)
    (root / "deep" / "er" / "c.MD.gz").write_bytes(gzip.compress(b"third" * 50))
    (root / "a.rst").write_text("first" * 50)
    (root / "empty.txt").write_text("")
    (root / "picture.png").write_bytes(b"\x89PNG\0\0")
    (root / "deep" / "loop").symlink_to(root)
    corpus = prepare(options("text", path=str(root)))
    assert corpus.documents == 3
    assert [document[:5] for document in documents(corpus, "train")] == [b"first", b"secon", b"third"]


def test_a_file_that_the_user_may_not_read_is_named(tmp_path):
    locked = tmp_path / "locked.txt"
    locked.write_text("text")
    locked.chmod(0)
    with contextlib.suppress(OSError):
        locked.read_text()
        pytest.skip("this user may read everything")
    with pytest.raises(ConfigError, match="cannot be read: Permission denied"):
        prepare(options("text", path=str(locked)))


def test_copy_repeats_each_string_and_each_option_changes_it():
    corpus = prepare(options("copy", span=5, symbols=3, tokens=2400))
    assert (len(corpus.train), len(corpus.validation)) == (2160, 240)
    for part in (corpus.train, corpus.validation):
        records = corpus.decode(part).splitlines()
        assert len(records) == len(part) // 12
        for record in records:
            first, second = record.split(b"|")
            assert first == second
            assert len(first) == 5
            assert set(first) <= set(b"abc")
    changes = ({}, {"span": 6}, {"symbols": 4}, {"tokens": 2412}, {"seed": 1}, {"vocabulary": 260})
    asked = [options("copy", **{"span": 5, "symbols": 3, "tokens": 2400, **change}) for change in changes]
    assert len({prepare(data).fingerprint for data in asked}) == 6


# The hub


@pytest.fixture
def local_hub(tmp_path, monkeypatch):
    """Use a data set on disk in place of the hub; the arguments of the last `load_dataset`."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf")
    rows = ["", " = Ahab = \n", "", " call\n", " = = Youth = = \n", " me\n", " = Ishmael = \n", " so\0me\n"]
    datasets.Dataset.from_dict({"text": rows, "number": list(range(8))}).to_parquet(
        tmp_path / "train.parquet"
    )
    asked: dict[str, Any] = {}
    load = datasets.load_dataset_builder

    def load_dataset_builder(path: str, name: str | None, **arguments: Any) -> Any:
        asked.update(arguments, path=path, name=name)
        builder = load("parquet", data_files=str(tmp_path / "train.parquet"), cache_dir=str(tmp_path / "hf"))
        builder.hash = "b08601e04326c79dfdd32d625aee71d232d685c3"
        return builder

    monkeypatch.setattr(datasets, "load_dataset_builder", load_dataset_builder)
    monkeypatch.setattr(hub, "_look_up", lambda source: None)
    yield asked
    datasets.enable_progress_bars()


def test_hub_rows_are_joined_to_articles(local_hub):
    data = options("wikitext103")
    articles = [b" = Ahab = \n call\n = = Youth = = \n me\n", b" = Ishmael = \n some\n"]
    assert list(sources.find(data).read()) == articles
    assert (local_hub["path"], local_hub["name"]) == ("Salesforce/wikitext", "wikitext-103-raw-v1")
    assert list(sources.find({**data, "documents": 1}).read()) == articles[:1]
    pinned = {**data, "revision": "main", "sha256": hashlib.sha256(b"".join(articles)).hexdigest()}
    assert list(sources.find(pinned).read()) == articles
    assert local_hub["revision"] == "main"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"revision": "f" * 40}, r"at data\.revision=f+ cannot be loaded; datasets' cache has b08601"),
        ({"revision": "main", "sha256": "0" * 64}, r"does not match data\.sha256"),
        ({"revision": "main"}, "can move: set a commit hash"),
        ({"column": "body"}, r"data\.column=body is not in .*; it has text, number"),
        ({"column": "number"}, "has int, not text"),
        ({"split": "test"}, r"could not be loaded from the hub: ValueError: (Unknown|Bad) split"),
        ({"document_start": "^Chapter"}, "matches no row"),
        ({"document_start": "("}, "is not a regular expression"),
        ({"files": "*.parquet"}, "files replaces name"),
        ({"path": "../.."}, r"data\.path"),
    ],
)
def test_names_that_the_hub_does_not_have_are_refused(local_hub, change, message):
    with pytest.raises(ConfigError, match=message) as raised:
        list(sources.find(options("wikitext103", **change)).read())
    assert "\n" not in str(raised.value)


def test_prepared_hub_data_need_no_hub(local_hub, monkeypatch):
    data = options("wikitext103", documents=2)
    first = prepare(data)
    local_hub.clear()
    assert prepare(data).fingerprint == first.fingerprint
    assert not local_hub


def test_an_unreachable_hub_is_one_line_that_says_what_works_offline(monkeypatch, tmp_path):
    import datasets
    import huggingface_hub

    def offline(*_: Any, **__: Any) -> None:
        raise huggingface_hub.errors.OfflineModeIsEnabled("offline mode is enabled")

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")  # read when the libraries are imported, which may have happened
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", offline)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf")
    with pytest.raises(
        ConfigError, match=r"hub cannot be reached.*data=stdlib, data=text data\.path=FILE"
    ) as raised:
        prepare(options("wikitext103"))
    assert "\n" not in str(raised.value)
    assert not list((tmp_path / "cache" / "data").glob("*.unfinished"))
