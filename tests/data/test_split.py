"""The text held out for validation, and its tokens."""

import json

import numpy as np
import pytest

from poslab.data.cache import prepare
from poslab.record.facts import DataFacts
from support.texts import ODD, documents, options, trained_tokenizer, words

# The split


def test_whole_documents_are_held_out_by_content(novels, data):
    corpus = prepare(data)
    train, validation = documents(corpus, "train"), documents(corpus, "validation")
    written = [path.read_bytes() for path in sorted(novels.iterdir())]
    assert sorted(train + validation) == sorted(written)
    assert not set(train) & set(validation)
    assert 0.1 <= sum(map(len, validation)) / sum(map(len, written)) <= 0.2
    begins = corpus.validation_documents[:, 0]
    assert [corpus.decode(corpus.validation[a:b]) for a, b in corpus.validation_documents] == validation
    assert (corpus.validation[begins[1:] - 1] == corpus.separator).all()
    # Removing a document does not move the others from one part to the other.
    (novels / "00.txt").unlink()
    assert {document[:11] for document in validation} & {
        d[:11] for d in documents(prepare(data), "validation")
    }


def test_duplicates_and_one_large_document_do_not_break_the_split(novels, data):
    (novels / "copy.txt").write_bytes((novels / "03.txt").read_bytes())
    (novels / "large.txt").write_text(words(20_000, seed=99))
    corpus = prepare(data)
    assert corpus.documents == 21
    assert len(corpus.validation) < 0.2 * (len(corpus.train) + len(corpus.validation))
    assert not set(documents(corpus, "train")) & set(documents(corpus, "validation"))


def test_no_long_document_decides_the_validation_loss(tmp_path):
    for index in range(300):
        (tmp_path / f"{index:03}.txt").write_text(words(20 if index % 30 else 2000, seed=index))
    corpus = prepare(options("text", path=str(tmp_path)))
    held_out = documents(corpus, "validation")
    total = len(corpus.train) + len(corpus.validation)
    assert 0.09 <= sum(map(len, held_out)) / total <= 0.2
    assert max(map(len, held_out)) <= total / 100


@pytest.mark.parametrize(("held_out", "size"), [(0.1, 100), (0.02, 20), ("300B", 100)])
def test_of_few_documents_the_end_of_each_is_held_out(tmp_path, held_out, size):
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text(name + "字" * 333, encoding="utf-8")
    corpus = prepare(options("text", path=str(tmp_path), held_out=held_out))
    train, validation = documents(corpus, "train"), documents(corpus, "validation")
    assert [part.decode()[0] for part in train] == ["a", "b", "c"]
    for begin, end in zip(train, validation, strict=True):
        assert (begin + end).decode()[1:] == "字" * 333
        assert abs(len(end) - size) <= 2
        end.decode()


# Tokens


@pytest.mark.parametrize(("entries", "dtype"), [("bytes", "uint8"), (300, "uint16")])
def test_tokens_are_lossless_and_have_their_bytes(tmp_path, monkeypatch, entries, dtype):
    monkeypatch.setattr("poslab.data.tokens.CHUNK", 100)  # also cuts inside the unusual text
    texts = [f"{index}{ODD}{words(100, index)}".encode() for index in range(12)]
    for index, text in enumerate(texts):
        (tmp_path / f"{index:02}.txt").write_bytes(text)
    corpus = prepare(options("text", path=str(tmp_path), vocabulary=entries))
    assert corpus.train.dtype == corpus.validation.dtype == np.dtype(dtype)
    assert isinstance(corpus.train, np.memmap)
    assert corpus.describe().keys() == DataFacts.model_fields.keys()
    assert len(corpus.token_bytes) == corpus.vocabulary == (256 if entries == "bytes" else entries)
    assert sorted(documents(corpus, "train") + documents(corpus, "validation")) == sorted(texts)
    for part in (corpus.train, corpus.validation):
        assert corpus.token_bytes[part].sum() == len(corpus.decode(part))
    if entries != "bytes":
        assert len(corpus.train) < corpus.token_bytes[corpus.train].sum() / 1.3


def test_large_vocabularies_take_four_bytes_per_token(tmp_path):
    path = trained_tokenizer(tmp_path / "tokenizer.json", [words(100, 1)])
    content = json.loads(path.read_text())
    unused = {f"x{number}": number for number in range(66_000)}  # before those of the text
    vocabulary = content["model"]["vocab"].items()
    content["model"]["vocab"] = unused | {token: 66_000 + number for token, number in vocabulary}
    for token in content["added_tokens"]:
        token["id"] += 66_000
    path.write_text(json.dumps(content))
    text = words(2_000, 2)
    (tmp_path / "text.txt").write_text(text)
    corpus = prepare(options("text", path=str(tmp_path / "text.txt"), vocabulary=str(path)))
    assert corpus.train.dtype == np.dtype("uint32")
    assert corpus.train.min() >= 66_000
    assert text.encode().startswith(corpus.decode(corpus.train))
