"""Windows of text: in training they depend on seed and step, in evaluation no target occurs twice."""

import re
from dataclasses import replace

import numpy as np
import pytest

from poslab.config.schema import ConfigError
from poslab.data.cache import prepare
from poslab.data.corpus import Corpus, check_lengths
from poslab.data.segments import extrapolation_segments, joined
from poslab.data.windows import Starts, training_batch, validation_windows
from support.texts import options, write_documents, write_short_documents


def of_places(corpus: Corpus) -> Corpus:
    """Return the text with each token replaced by its position, so that a window shows its place."""
    return replace(corpus, validation=np.arange(len(corpus.validation)))


def test_training_batches_are_a_function_of_seed_and_step(data):
    corpus = prepare(data)
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


def test_training_windows_reach_both_ends_of_the_text_or_of_each_document(tmp_path):
    for number, text in enumerate(["abcdefghij", "kl", "mnopqrstuvwxyz", "", "0123"]):
        (tmp_path / f"{number}.txt").write_text(text)
    corpus = prepare(options("text", path=str(tmp_path)))
    train = corpus.decode(corpus.train)
    for within, texts in ((False, [train]), (True, train.split(b"\0"))):
        starts = Starts(corpus, 3, within)
        drawn = {corpus.decode(window) for window in training_batch(corpus, 0, 0, 3000, 3, starts)}
        assert drawn == {text[first : first + 4] for text in texts for first in range(len(text) - 3)}
        assert len(drawn) == starts.count


def test_documents_shorter_than_a_window_have_none(tmp_path):
    write_documents(tmp_path / "short", 40)
    corpus = prepare(options("text", path=str(tmp_path / "short")))
    longest = max(len(text) for text in corpus.decode(corpus.train).split(b"\0"))
    assert Starts(corpus, longest - 1, within=True).count >= 1
    with pytest.raises(ConfigError, match=r"data\.windows=joined"):
        Starts(corpus, longest, within=True)


@pytest.mark.parametrize("count", [5, 10_000])
def test_segments_lie_in_one_document_and_share_no_target(tmp_path, count):
    write_documents(tmp_path / "varied", 40)
    (tmp_path / "varied" / "short.txt").write_text("too short")
    corpus = prepare(options("text", path=str(tmp_path / "varied")))
    places, longest = of_places(corpus), 100
    segments, documents = extrapolation_segments(places, count, longest)
    assert (documents == extrapolation_segments(corpus, count, longest)[1]).all()
    assert segments.shape[1] == 2 * longest + 1
    assert len(segments) == count or count == 10_000
    for segment, document in zip(segments, documents, strict=True):
        assert (np.diff(segment) == 1).all()
        inside = (corpus.validation_documents[:, 0] <= segment[0]) & (
            segment[-1] < corpus.validation_documents[:, 1]
        )
        assert np.flatnonzero(inside).tolist() == [document]
    targets = segments[:, -longest:].ravel()
    assert len(set(targets)) == len(targets)
    if count == 10_000:  # as many as fit
        room = np.diff(corpus.validation_documents)[:, 0] - longest - 1
        assert len(segments) == (np.maximum(room, 0) // longest).sum()
    windows = validation_windows(places, count, 50)
    assert len(set(windows[:, 1:].ravel())) == windows[:, 1:].size
    assert len(windows) == min(count, (len(corpus.validation) - 1) // 50)


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (2, [0, 1, 0, 1, 0]),  # as far apart as possible
        (4, [1, 1, 1, 1, 0]),
        (5, [1, 1, 1, 2, 0]),
        (8, [1, 3, 1, 3, 0]),
        (100, [1, 6, 1, 3, 0]),  # all that fit
    ],
)
def test_no_document_has_a_second_segment_before_each_has_one(tmp_path, count, expected):
    corpus = prepare(options("copy", tokens=50_000))
    sizes = np.array([30, 80, 30, 50, 20])  # 2 x 10 + 1 tokens make a segment
    ends = np.cumsum(sizes)
    cut = np.stack([ends - sizes, ends], axis=1)
    _, document = extrapolation_segments(replace(corpus, validation_documents=cut), count, 10)
    assert np.bincount(document, minlength=5).tolist() == expected


@pytest.mark.parametrize("count", [5, 10_000])
def test_joined_documents_give_segments_of_disjoint_groups(tmp_path, count):
    """If no document has room: consecutive tokens of the text, with separators."""
    corpus = prepare(options("text", path=str(write_short_documents(tmp_path / "short"))))
    longest = 100
    with pytest.raises(ConfigError, match=r"evaluate\.documents=joined"):
        check_lengths(corpus, 10, longest)
    with pytest.raises(ConfigError, match=r"evaluate\.documents=joined"):
        extrapolation_segments(corpus, count, longest)
    check_lengths(corpus, 10, longest, "joined")
    segments, groups = extrapolation_segments(of_places(corpus), count, longest, "joined")
    assert 1 <= len(segments) <= count
    assert (np.diff(segments) == 1).all()
    targets = segments[:, -longest:].ravel()
    assert len(set(targets)) == len(targets)
    for group in set(groups):  # a group begins with a document and shares no token with another group
        first = segments[groups == group].min()
        assert (segments[groups < group] < first).all()
    text = corpus.validation[segments]
    assert (text == corpus.separator).any(axis=1).all()
    assert (extrapolation_segments(corpus, count, longest, "joined")[0] == text).all()


def test_groups_of_documents_are_minimal_and_contain_every_document():
    documents = np.array([[0, 10], [11, 15], [16, 40], [41, 43], [44, 47]])
    assert joined(documents, 10).tolist() == [[0, 10], [11, 47]]
    assert joined(documents, 15).tolist() == [[0, 15], [16, 47]]
    assert joined(documents, 47).tolist() == [[0, 47]]
    assert joined(documents, 48).tolist() == []
    assert joined(documents[:0], 1).tolist() == []


def test_a_text_too_short_for_joined_documents_is_refused_without_naming_them(tmp_path):
    path = write_short_documents(tmp_path / "short", count=40)
    corpus = prepare(options("text", path=str(path)))
    for documents in ("single", "joined"):
        with pytest.raises(ConfigError) as refused:
            check_lengths(corpus, 10, 1000, documents)
        assert "evaluate.documents" not in str(refused.value)
        with pytest.raises(ConfigError):
            extrapolation_segments(corpus, 1, 1000, documents)


def test_fixed_windows_are_spread_over_all_of_the_text():
    places = of_places(prepare(options("copy", tokens=100_000)))
    starts = validation_windows(places, 10, 64)[:, 0]
    assert (np.abs(np.diff(starts) - 1000) <= 64).all()
    assert abs(starts[0] - 500) <= 64
    starts = extrapolation_segments(places, 10, 256)[0][:, 0]
    assert (np.abs(np.diff(starts) - 974) <= 256).all()


def test_the_error_for_a_short_text_has_sizes_and_remedies(tmp_path):
    def message(tokens: int, context_length: int, longest: int) -> str:
        (tmp_path / "short.txt").write_text("x" * tokens)
        corpus = prepare(options("text", path=str(tmp_path / "short.txt")))
        with pytest.raises(ConfigError) as raised:
            check_lengths(corpus, context_length, longest)
        return str(raised.value)

    for asked, part, remedies in (
        ((10_000, 128, 1024), "validation part (1,000)", ["evaluate.longest=2", "context_length=32"]),
        ((2400, 128, 1024), "validation part (240)", ["context_length=64", "evaluate.longest=1"]),
        ((20_480, 128, 1024), "validation part (2,048)", ["evaluate.longest=4", "context_length=64"]),
        ((300, 128, 1024), "about 20,490 tokens", []),
        ((100, 128, 1024), "training part (90)", []),
        ((1000, 128, 128), "validation part (100)", ["context_length=32"]),
        ((9, 1, 1), "validation part (0)", []),
    ):
        text = message(*asked)
        assert part in text
        assert re.findall(r"[a-z._]+=\d+", text) == remedies
    check_lengths(prepare(options("copy")), 128, 2048)
    for tokens, *lengths in ((2400, 64, 64), (20_490, 128, 1024)):  # the advice works
        (tmp_path / "short.txt").write_text("x" * tokens)
        corpus = prepare(options("text", path=str(tmp_path / "short.txt")))
        check_lengths(corpus, *lengths)
        assert len(extrapolation_segments(corpus, 1, lengths[-1])[0]) == 1
