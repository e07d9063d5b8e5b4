"""A user's tokenizer: every byte is restored, special tokens are text, other kinds are refused."""

import json

import pytest
from tokenizers import Tokenizer

from poslab.config.overrides import evaluation_overrides
from poslab.config.schema import ConfigError
from poslab.data.cache import prepare
from poslab.data.tokenizer_file import read_tokenizer
from support.runs import request
from support.texts import ODD, documents, options, trained_in_characters, trained_tokenizer, words

TEXTS = [words(300, seed) for seed in range(5)]


def test_the_tokens_depend_on_the_file_and_not_on_its_path(tmp_path, data):
    def fingerprint(name, entries):
        file = trained_tokenizer(tmp_path / name, TEXTS, entries)
        return prepare({**data, "vocabulary": str(file)}).fingerprint

    first = fingerprint("a.json", 300)
    assert first == fingerprint("b.json", 300) != fingerprint("a.json", 280)


@pytest.mark.parametrize("kind", ["byte-level", "normalizer", "pre_tokenizer", "none"])
def test_every_byte_is_restored_and_the_tokens_are_the_tokenizers_own(kind, tmp_path, novels, data):
    """For tokenizers of bytes (GPT-2) and of characters (Llama 2, Mistral and Gemma).

    Special tokens are text. The space that two of them put before a text is left out.
    """
    (novels / "odd.txt").write_text(ODD)
    file = tmp_path / "mine.json"
    if kind == "byte-level":
        trained_tokenizer(file, TEXTS)
    else:
        trained_in_characters(file, TEXTS, kind)
    corpus = prepare({**data, "vocabulary": str(file)})
    theirs = Tokenizer.from_file(str(file))
    assert corpus.vocabulary == theirs.get_vocab_size() + 1  # one more token separates documents
    read = {text for part in ("train", "validation") for text in documents(corpus, part)}
    assert read == {path.read_bytes() for path in novels.iterdir()}
    text = f"\n{words(300, 3)} {ODD if kind != 'byte-level' else ''}"
    cut, _ = read_tokenizer(file).encode([text.encode()])
    own = theirs.encode(text, add_special_tokens=False).ids
    assert cut.tolist() == own[1 if kind in ("normalizer", "pre_tokenizer") else 0 :]
    assert len(cut) < len(text.encode()) / 2  # its merges are used


def test_a_record_has_only_the_names_of_files():
    files = {"path": "/home/someone/text.txt", "vocabulary": "/home/someone/mine.json"}
    recorded = request(data=options("text", **files)).config.result_settings()["data"]
    assert (recorded["path"], recorded["vocabulary"]) == ("text.txt", "mine.json")


def test_an_evaluation_may_name_the_new_place_of_the_file():
    assert evaluation_overrides(["data.vocabulary=there/mine.json"]) == {"data.vocabulary": "there/mine.json"}
    with pytest.raises(ConfigError, match="cannot be set for an evaluation"):
        evaluation_overrides(["data.vocabulary=512"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{}", "is not a tokenizer.json with"),
        (json.dumps({"model": {"vocab": {"\u2581the": 0}}}), "is neither a byte-level BPE nor one"),
        (json.dumps({"model": {"vocab": {"a": 0}}}), "cannot be read as a tokenizer"),
    ],
)
def test_a_file_that_is_not_such_a_tokenizer_is_refused(content, message, tmp_path, data):
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(ConfigError, match=message) as raised:
        prepare({**data, "vocabulary": str(tmp_path / "x.json")})
    assert "\n" not in str(raised.value)
