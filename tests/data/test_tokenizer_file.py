"""A tokenizer of one's own: every byte comes back, special tokens are text, other kinds are refused."""

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


def test_every_byte_comes_back_and_special_tokens_are_text(tmp_path, novels):
    (novels / "odd.txt").write_text(ODD)
    tokenizer = trained_tokenizer(tmp_path / "mine.json", TEXTS)
    corpus = prepare(options("text", path=str(novels), vocabulary=str(tokenizer)))
    entries = Tokenizer.from_file(str(tokenizer)).get_vocab_size()
    assert corpus.vocabulary == entries + 1  # one more separates documents
    read = {text for part in ("train", "validation") for text in documents(corpus, part)}
    assert read == {path.read_bytes() for path in novels.iterdir()}
    everything = Tokenizer.from_file(str(tokenizer)).encode(words(300, 3))
    assert len(everything.ids) < len(words(300, 3)) / 2  # its merges are used


def test_the_tokens_follow_the_file_and_not_its_place(tmp_path, novels):
    def fingerprint(name, entries):
        file = trained_tokenizer(tmp_path / name, TEXTS, entries)
        return prepare(options("text", path=str(novels), vocabulary=str(file))).fingerprint

    first = fingerprint("a.json", 300)
    assert first == fingerprint("b.json", 300) != fingerprint("a.json", 280)


@pytest.mark.parametrize("prefix", ["normalizer", "pre_tokenizer", "none"])
def test_a_tokenizer_in_characters_spells_the_others_in_bytes(prefix, tmp_path, novels):
    """As Llama 2's, Mistral's and Gemma's. The space that the first two put before a text is left out."""
    (novels / "odd.txt").write_text(ODD)
    path = trained_in_characters(tmp_path / "mine.json", TEXTS, prefix)
    corpus = prepare(options("text", path=str(novels), vocabulary=str(path)))
    read = {text for part in ("train", "validation") for text in documents(corpus, part)}
    assert read == {path.read_bytes() for path in novels.iterdir()}
    text = f"\n{words(300, 3)} {ODD}"
    its_own = Tokenizer.from_file(str(path)).encode(text, add_special_tokens=False).ids
    cut, _ = read_tokenizer(path).encode([text.encode()])
    assert cut.tolist() == its_own[0 if prefix == "none" else 1 :]
    assert len(cut) < len(text.encode()) / 2  # its merges are used


def test_a_record_has_the_names_of_files_alone():
    files = {"path": "/home/someone/text.txt", "vocabulary": "/home/someone/mine.json"}
    recorded = request(data=options("text", **files)).config.result_settings()["data"]
    assert (recorded["path"], recorded["vocabulary"]) == ("text.txt", "mine.json")


def test_an_evaluation_may_say_where_the_file_is_now():
    assert evaluation_overrides(["data.vocabulary=there/mine.json"]) == {"data.vocabulary": "there/mine.json"}
    with pytest.raises(ConfigError, match="cannot be set for an evaluation"):
        evaluation_overrides(["data.vocabulary=512"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{}", "is no tokenizer.json with a vocabulary"),
        (json.dumps({"model": {"vocab": {"\u2581the": 0}}}), "is no BPE that spells in bytes"),
        (json.dumps({"model": {"vocab": {"a": 0}}}), "is not read as a tokenizer"),
    ],
)
def test_a_file_that_is_no_such_tokenizer_is_refused(content, message, tmp_path, novels):
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(ConfigError, match=message) as raised:
        prepare(options("text", path=str(novels), vocabulary=str(tmp_path / "x.json")))
    assert "\n" not in str(raised.value)
