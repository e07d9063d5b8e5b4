"""Texts of documents for tests of the data."""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, trainers

from poslab.data.corpus import Corpus
from support.commands import ROOT

CONF = ROOT / "conf" / "data"
ODD = 9 * ("naïve café\r\n\r\n\t  漢字かな\u200d👩\u200d👧\n\u00a0\ufeffالعربية <|endoftext|> \x01 e\u0301")
WORDS = ("the", "whale", "sea", "ship", "ahab", "said", "old", "and", "white", "of")


def options(arm: str, **changes: Any) -> dict[str, Any]:
    return {**yaml.safe_load((CONF / f"{arm}.yaml").read_text()), **changes}


def words(count: int, seed: int) -> str:
    return " ".join(random.Random(seed).choices(WORDS, k=count))


def write_documents(directory: Path, count: int, size: int = 300) -> Path:
    directory.mkdir()
    for index in range(count):
        (directory / f"{index:02}.txt").write_text(f"document {index}\n{words(size, index)}\n")
    return directory


def write_short_documents(directory: Path, count: int = 400, longest: int = 90) -> Path:
    """Write documents of 4 to `longest` bytes, all different."""
    directory.mkdir()
    for number in range(count):
        (directory / f"{number:03}.txt").write_text(f"{number:03} " + "abc " * (number * 7 % longest // 4))
    return directory


def documents(corpus: Corpus, part: str) -> list[bytes]:
    return corpus.decode(getattr(corpus, part)).split(b"\0")


def trained_tokenizer(path: Path, texts: Sequence[str], entries: int = 300) -> Path:
    """Train a byte-level BPE with a special token, and save it as the `tokenizers` library does."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=entries,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=["<|endoftext|>"],
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.save(str(path))
    return path


def trained_in_characters(path: Path, texts: Sequence[str], prefix: str = "normalizer") -> Path:
    """Train a BPE like SentencePiece, with \u2581 for spaces, and bytes for characters that it lacks.

    `prefix` is the part that adds a space before each text; a third kind, such as Gemma's, has none.
    """
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=120, special_tokens=["<unk>"], show_progress=False)
    trained.train_from_iterator(texts, trainer)
    learned = json.loads(trained.to_str())["model"]
    names = ["<unk>", "<s>", "</s>", *(f"<0x{value:02X}>" for value in range(256))]
    names += [name for name in learned["vocab"] if name != "<unk>"]
    merges = [tuple(merge) for merge in learned["merges"]]
    if prefix == "none":  # Gemma's also have a tab for its byte, and runs of spaces as added tokens
        names[names.index("<0x09>")] = "\t"
        names.append(2 * "\u2581")
        merges.append(("\u2581", "\u2581"))
    numbers = {name: number for number, name in enumerate(names)}
    tokenizer = Tokenizer(models.BPE(numbers, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.add_special_tokens(names[:3])
    if prefix == "none":
        tokenizer.add_tokens([AddedToken(2 * "\u2581", normalized=False)])
    if prefix == "pre_tokenizer":
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    else:
        steps = [normalizers.Prepend("\u2581")] if prefix == "normalizer" else []
        tokenizer.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", "\u2581")])
    tokenizer.save(str(path))
    return path
