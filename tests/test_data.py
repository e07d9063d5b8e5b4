"""What a user relies on: the same text, the same tokens; held-out text is held out; errors say what to do."""

import contextlib
import gzip
import hashlib
import pickle
import pkgutil
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from poslab.config.schema import ConfigError
from poslab.data import cache, sources
from poslab.data.cache import prepare
from poslab.data.corpus import Corpus
from poslab.data.sources import hub
from poslab.data.windows import check_lengths, extrapolation_segments, training_batch, validation_windows

CONF = Path(__file__).parent.parent / "conf" / "data"
ODD = 9 * ("naïve café\r\n\r\n\t  漢字かな\u200d👩\u200d👧\n\u00a0\ufeffالعربية <|endoftext|> \x01 e\u0301")
WORDS = ("the", "whale", "sea", "ship", "ahab", "said", "old", "and", "white", "of")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POSLAB_CACHE", str(tmp_path / "cache"))


def options(arm: str, **changes: Any) -> dict[str, Any]:
    return {**yaml.safe_load((CONF / f"{arm}.yaml").read_text()), **changes}


def words(count: int, seed: int) -> str:
    return " ".join(random.Random(seed).choices(WORDS, k=count))


def write_documents(directory: Path, count: int, size: int = 300) -> Path:
    directory.mkdir()
    for index in range(count):
        (directory / f"{index:02}.txt").write_text(f"document {index}\n{words(size, index)}\n")
    return directory


@pytest.fixture
def novels(tmp_path: Path) -> Path:
    return write_documents(tmp_path / "novels", 20)


def documents(corpus: Corpus, part: str) -> list[bytes]:
    return corpus.decode(getattr(corpus, part)).split(b"\0")


# Sources


def test_every_arm_names_a_source_and_all_its_options() -> None:
    for path in CONF.glob("*.yaml"):
        source = sources.find(yaml.safe_load(path.read_text()))
        assert set(yaml.safe_load(path.read_text())) == set(type(source).model_fields), path.name
    modules = {module.name for module in pkgutil.iter_modules(sources.__path__)}
    assert {yaml.safe_load(path.read_text())["source"] for path in CONF.glob("*.yaml")} == modules


def test_standard_library_is_real_python_without_tests() -> None:
    read = list(sources.find(options("stdlib")).read())
    assert sum(map(len, read)) > 5e6
    assert any(b"class ArgumentParser(" in document for document in read)
    assert not any(b"class TestCase(unittest" in document for document in read)


def test_gzip_is_told_by_content_and_same_content_has_the_same_fingerprint(tmp_path: Path) -> None:
    text = words(3000, seed=1).encode()
    (tmp_path / "plain.txt").write_bytes(text)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "zipped").write_bytes(gzip.compress(text))
    plain = prepare(options("text", path=str(tmp_path / "plain.txt")))
    zipped = prepare(options("text", path=str(tmp_path / "elsewhere" / "zipped")))
    assert plain.fingerprint == zipped.fingerprint
    assert (plain.name, zipped.name) == ("plain.txt", "zipped")
    assert plain.decode(plain.train) + plain.decode(plain.validation) == text


def test_directory_is_searched_for_text_files_only(tmp_path: Path) -> None:
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


# Named by hand: a gzip file holds the second it was made in, and the processes of the tests compare names.
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"ab\0c", "is binary"),
        ("żółw".encode("latin2"), "is not UTF-8"),
        ("text".encode("utf-16"), "iconv -f UTF-16 -t UTF-8"),
        (gzip.compress(b"text" * 99)[:-12], "is a damaged gzip file"),
        (gzip.compress(b"text" * 99)[:12] + b"garbage" * 9, "is a damaged gzip file"),
        (gzip.compress(b""), "is empty"),
    ],
    ids=["no bytes", "binary", "latin2", "utf-16", "gzip cut", "gzip garbled", "gzip of nothing"],
)
def test_files_that_are_no_text_are_told_in_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(ConfigError, match=message) as raised:
        prepare(options("text", path=str(tmp_path / "file")))
    assert "\n" not in str(raised.value)
    assert str(tmp_path / "file") in str(raised.value)


def test_paths_that_lead_nowhere(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"data=text needs data\.path=FILE or DIRECTORY"):
        prepare(options("text"))
    with pytest.raises(ConfigError, match="does not exist"):
        prepare(options("text", path=str(tmp_path / "nothing")))
    with pytest.raises(ConfigError, match=r"has no text files \(\.txt"):
        prepare(options("text", path=str(tmp_path)))
    locked = tmp_path / "locked.txt"
    locked.write_text("text")
    locked.chmod(0)
    with contextlib.suppress(OSError):
        locked.read_text()
        pytest.skip("this user may read everything")
    with pytest.raises(ConfigError, match="cannot be read: Permission denied"):
        prepare(options("text", path=str(locked)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source": "web"}, "there are copy, hub, stdlib, text"),
        ({"spam": 1}, r"data\.spam is not"),
        ({"vocabulary": 256}, r"data\.vocabulary: 256 is neither"),
        ({"vocabulary": "words"}, r"data\.vocabulary: 'words' is neither"),
        ({"span": 0}, r"data\.span=0"),
        ({"symbols": 53}, r"data\.symbols=53"),
        ({"tokens": "many"}, r"data\.tokens='many'"),
    ],
)
def test_options_are_checked(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        prepare(options("copy", **changes))


def test_copy_repeats_each_string_and_each_option_changes_it() -> None:
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
    fingerprints = {corpus.fingerprint}
    for change in ({"span": 6}, {"symbols": 4}, {"tokens": 2412}, {"seed": 1}, {"vocabulary": 260}):
        fingerprints.add(
            prepare(options("copy", **{"span": 5, "symbols": 3, "tokens": 2400, **change})).fingerprint
        )
    assert len(fingerprints) == 6


def test_copy_is_the_same_text_for_ever() -> None:
    corpus = prepare(options("copy", span=8, symbols=16, tokens=1000))
    assert corpus.decode(corpus.train[:18]) == b"lcjmdnhm|lcjmdnhm\n"


# The hub


@pytest.fixture
def local_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """A data set on disk in the hub's place; the arguments of the last `load_dataset`."""
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


def test_hub_rows_are_joined_to_articles(local_hub: dict[str, Any]) -> None:
    data = options("wikitext103")
    articles = [b" = Ahab = \n call\n = = Youth = = \n me\n", b" = Ishmael = \n some\n"]
    assert list(sources.find(data).read()) == articles
    assert (local_hub["path"], local_hub["name"]) == ("Salesforce/wikitext", "wikitext-103-raw-v1")
    assert list(sources.find({**data, "documents": 1}).read()) == articles[:1]
    pinned = {**data, "revision": "main", "sha256": hashlib.sha256(b"".join(articles)).hexdigest()}
    assert list(sources.find(pinned).read()) == articles
    assert local_hub["revision"] == "main"


def test_hub_text_is_the_one_that_was_pinned(local_hub: dict[str, Any]) -> None:
    for change, message in [
        ({"revision": "f" * 40}, r"at data\.revision=f+ cannot be loaded; datasets' cache holds b08601"),
        ({"revision": "main", "sha256": "0" * 64}, r"is not the text that data\.sha256 names"),
        ({"revision": "main"}, "can move; give a commit hash"),
    ]:
        with pytest.raises(ConfigError, match=message):
            list(sources.find(options("wikitext103", **change)).read())


def test_hub_options_that_lead_nowhere_are_told(local_hub: dict[str, Any]) -> None:
    for change, message in [
        ({"column": "body"}, r"data\.column=body is not in .*; it has text, number"),
        ({"column": "number"}, "holds int, not text"),
        ({"split": "test"}, r"could not be loaded from the hub: ValueError: (Unknown|Bad) split"),
        (
            {"split": "test", "documents": 1},
            r"could not be loaded from the hub: ValueError: (Unknown|Bad) split",
        ),
        ({"document_start": "^Chapter"}, "matches no row"),
        ({"document_start": "("}, "is not a regular expression"),
        ({"files": "*.parquet"}, "files stands instead of name"),
        ({"path": "../.."}, r"data\.path"),
    ]:
        with pytest.raises(ConfigError, match=message) as raised:
            list(sources.find(options("wikitext103", **change)).read())
        assert "\n" not in str(raised.value)


def test_prepared_hub_data_need_no_hub(local_hub: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    data = options("wikitext103", documents=2)
    first = prepare(data)
    local_hub.clear()
    assert prepare(data).fingerprint == first.fingerprint
    assert not local_hub


def test_unreachable_hub_is_one_line_with_what_works_offline(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import datasets
    import huggingface_hub

    def offline(*_: Any, **__: Any) -> None:
        raise huggingface_hub.errors.OfflineModeIsEnabled("offline mode is enabled")

    monkeypatch.setenv(
        "HF_HUB_OFFLINE", "1"
    )  # what the libraries read as they are imported, which may be past
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", offline)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf")
    for arm in ("tiny_shakespeare", "wikitext103"):
        with pytest.raises(
            ConfigError, match=r"hub cannot be reached.*data=stdlib, data=text data\.path=FILE"
        ) as raised:
            prepare(options(arm))
        assert "\n" not in str(raised.value)
    assert not list((tmp_path / "cache" / "data").glob("*.unfinished"))


# The split


def test_whole_documents_are_held_out_by_content(novels: Path) -> None:
    corpus = prepare(options("text", path=str(novels)))
    train, validation = documents(corpus, "train"), documents(corpus, "validation")
    written = [path.read_bytes() for path in sorted(novels.iterdir())]
    assert sorted(train + validation) == sorted(written)
    assert not set(train) & set(validation)
    assert 0.1 <= sum(map(len, validation)) / sum(map(len, written)) <= 0.2
    begins = corpus.validation_documents[:, 0]
    assert [corpus.decode(corpus.validation[a:b]) for a, b in corpus.validation_documents] == validation
    assert (corpus.validation[begins[1:] - 1] == corpus.separator).all()
    # Whether another document is there does not move those that stay from one part to the other.
    (novels / "00.txt").unlink()
    assert {document[:11] for document in validation} & {
        d[:11] for d in documents(prepare(options("text", path=str(novels))), "validation")
    }


def test_duplicates_and_one_large_document_do_not_break_the_split(novels: Path) -> None:
    (novels / "copy.txt").write_bytes((novels / "03.txt").read_bytes())
    (novels / "large.txt").write_text(words(20_000, seed=99))
    corpus = prepare(options("text", path=str(novels)))
    assert corpus.documents == 21
    assert len(corpus.validation) < 0.2 * (len(corpus.train) + len(corpus.validation))
    assert not set(documents(corpus, "train")) & set(documents(corpus, "validation"))


def test_no_long_document_decides_the_validation_loss(tmp_path: Path) -> None:
    root = tmp_path / "uneven"
    root.mkdir()
    for index in range(300):
        (root / f"{index:03}.txt").write_text(words(20 if index % 30 else 2000, seed=index))
    corpus = prepare(options("text", path=str(root)))
    held_out = documents(corpus, "validation")
    total = len(corpus.train) + len(corpus.validation)
    assert 0.09 <= sum(map(len, held_out)) / total <= 0.2
    assert max(map(len, held_out)) <= total / 100


def test_few_documents_give_the_last_tenth_of_each_between_characters(tmp_path: Path) -> None:
    root = tmp_path / "few"
    root.mkdir()
    for name in "abc":
        (root / f"{name}.txt").write_text(name + "字" * 333, encoding="utf-8")
    corpus = prepare(options("text", path=str(root)))
    train, validation = documents(corpus, "train"), documents(corpus, "validation")
    assert [part.decode()[0] for part in train] == ["a", "b", "c"]
    for begin, end in zip(train, validation, strict=True):
        assert (begin + end).decode()[1:] == "字" * 333
        assert 99 <= len(end) <= 102
        end.decode()


# Tokens


@pytest.mark.parametrize(("entries", "dtype"), [("bytes", "uint8"), (300, "uint16")])
def test_tokens_are_lossless_and_know_their_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entries: Any, dtype: str
) -> None:
    monkeypatch.setattr("poslab.data.tokens.CHUNK", 100)  # cuts within the odd text too
    root = tmp_path / "odd"
    root.mkdir()
    texts = [f"{index}{ODD}{words(100, index)}".encode() for index in range(12)]
    for index, text in enumerate(texts):
        (root / f"{index:02}.txt").write_bytes(text)
    corpus = prepare(options("text", path=str(root), vocabulary=entries))
    assert corpus.train.dtype == corpus.validation.dtype == np.dtype(dtype)
    assert isinstance(corpus.train, np.memmap)
    assert len(corpus.token_bytes) == corpus.vocabulary == (256 if entries == "bytes" else entries)
    assert sorted(documents(corpus, "train") + documents(corpus, "validation")) == sorted(texts)
    for part in (corpus.train, corpus.validation):
        assert corpus.token_bytes[part].sum() == len(corpus.decode(part))
    if entries != "bytes":
        assert len(corpus.train) < corpus.token_bytes[corpus.train].sum() / 1.3


def test_large_vocabularies_take_four_bytes_a_token() -> None:
    corpus = prepare(options("copy", symbols=52, tokens=320_000, vocabulary=66_000))
    assert corpus.train.dtype == np.dtype("uint32")
    assert corpus.token_bytes[corpus.train].sum() == 288_000


def test_bpe_is_trained_on_the_training_part_and_the_same_each_time(
    tmp_path: Path, novels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = prepare(options("text", path=str(novels), vocabulary=320))
    monkeypatch.setenv("POSLAB_CACHE", str(tmp_path / "another"))
    assert prepare(options("text", path=str(novels), vocabulary=320)).fingerprint == first.fingerprint
    with pytest.raises(
        ConfigError, match=r"data\.vocabulary=5000 is more than this text gives; use at most \d{3} "
    ):
        prepare(options("text", path=str(novels), vocabulary=5000))


# The cache


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


# Windows


def test_training_batches_are_a_function_of_seed_and_step(novels: Path) -> None:
    corpus = prepare(options("text", path=str(novels)))
    seed = 2**63 - 1
    batch = training_batch(corpus, seed, 7, 16, 32)
    assert batch.shape == (16, 33)
    assert batch.dtype == np.int64
    assert (batch == training_batch(corpus, seed, 7, 16, 32)).all()
    assert (batch[:4] == training_batch(corpus, seed, 7, 4, 32)).all()
    others = [training_batch(corpus, seed, 8, 16, 32), training_batch(corpus, seed - 1, 7, 16, 32)]
    assert all((batch != other).any() for other in others)
    text = corpus.decode(corpus.train)
    assert all(corpus.decode(window) in text for window in batch)


def test_training_windows_reach_both_ends(tmp_path: Path) -> None:
    (tmp_path / "alphabet.txt").write_text("abcdefghijklmnopqrstuvwxyz")
    corpus = prepare(options("text", path=str(tmp_path / "alphabet.txt")))
    starts = training_batch(corpus, 0, 0, 2000, 3)[:, 0] - ord("a")
    assert set(starts) == set(range(len(corpus.train) - 3))


@pytest.mark.parametrize("count", [1, 5, 40, 10_000])
def test_segments_lie_in_one_document_and_share_no_target(tmp_path: Path, count: int) -> None:
    write_documents(tmp_path / "varied", 40)
    (tmp_path / "varied" / "short.txt").write_text("too short")
    corpus = prepare(options("text", path=str(tmp_path / "varied")))
    # Tokens are replaced by their positions, so that a window says where it lies.
    places = dict(corpus.__dict__, validation=np.arange(len(corpus.validation)))
    longest = 100
    segments = extrapolation_segments(Corpus(**places), count, longest)
    assert segments.shape[1] == 2 * longest + 1
    assert 1 <= len(segments) <= count
    assert len(segments) == min(count, 10_000 if count < 40 else len(segments))
    for segment in segments:
        assert (np.diff(segment) == 1).all()
        inside = (corpus.validation_documents[:, 0] <= segment[0]) & (
            segment[-1] < corpus.validation_documents[:, 1]
        )
        assert inside.sum() == 1
    targets = segments[:, -longest:].ravel()
    assert len(set(targets)) == len(targets)
    if count == 10_000:  # as many as there is room for
        room = np.diff(corpus.validation_documents)[:, 0] - longest - 1
        assert len(segments) == (np.maximum(room, 0) // longest).sum()
    windows = validation_windows(Corpus(**places), count, 50)
    assert len(set(windows[:, 1:].ravel())) == windows[:, 1:].size
    assert len(windows) == min(count, (len(corpus.validation) - 1) // 50)


def test_fixed_windows_are_spread_over_all_of_the_text() -> None:
    corpus = prepare(options("copy", tokens=100_000))
    places = Corpus(**dict(corpus.__dict__, validation=np.arange(len(corpus.validation))))
    starts = validation_windows(places, 10, 64)[:, 0]
    assert (np.abs(np.diff(starts) - 1000) <= 64).all()
    assert abs(starts[0] - 500) <= 64
    starts = extrapolation_segments(places, 10, 256)[:, 0]
    assert (np.abs(np.diff(starts) - 974) <= 256).all()


def test_texts_too_short_are_told_with_sizes_and_remedies(tmp_path: Path) -> None:
    def told(tokens: int, context_length: int, longest: int) -> str:
        (tmp_path / "short.txt").write_text("x" * tokens)
        corpus = prepare(options("text", path=str(tmp_path / "short.txt")))
        with pytest.raises(ConfigError) as raised:
            check_lengths(corpus, context_length, longest)
        return str(raised.value)

    assert told(10_000, 128, 1024) == (
        "short.txt has 10,000 tokens; its validation part (1,000) is shorter than the 2,049 that evaluation "
        "at 8 x 128 needs; use a longer text, evaluate.longest=2 or context_length=32"
    )
    assert told(100, 128, 1024) == (
        "short.txt has 100 tokens; its training part (90) is shorter than one window of 129; use a "
        "longer text"
    )
    assert told(1000, 128, 128) == (
        "short.txt has 1,000 tokens; its validation part (100) is shorter than one window of 129; use a "
        "longer text or context_length=32"
    )
    assert "validation part (0)" in told(9, 1, 1)
    check_lengths(prepare(options("copy")), 128, 2048)


@pytest.mark.parametrize(
    ("tokens", "context_length", "multiple"), [(20_490, 128, 8), (20_480, 128, 8), (3000, 16, 8)]
)
def test_lengths_that_pass_the_check_can_be_evaluated(
    tmp_path: Path, tokens: int, context_length: int, multiple: int
) -> None:
    (tmp_path / "file.txt").write_text("y" * tokens)
    corpus = prepare(options("text", path=str(tmp_path / "file.txt")))
    longest = multiple * context_length
    try:
        check_lengths(corpus, context_length, longest)
    except ConfigError:
        with pytest.raises(ConfigError):
            extrapolation_segments(corpus, 1, longest)
    else:
        assert len(extrapolation_segments(corpus, 1, longest)) == 1
        assert len(validation_windows(corpus, 1, context_length)) == 1
        assert training_batch(corpus, 0, 0, 2, context_length).shape == (2, context_length + 1)
