"""The tokenizer of a run, as a file that cuts another text into the same tokens."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from poslab.config.schema import is_tokenizer_file
from poslab.data.corpus import Corpus
from poslab.data.tokens import byte_of_letter

BYTES = 256


def tokenizer_of(vocabulary: Any, corpus: Corpus) -> bytes:
    """Return the content of the tokenizer.json that cut `corpus` into tokens that are no bytes.

    `vocabulary` is the run's `data.vocabulary`: its file is copied, and a BPE that was trained on the text is
    rebuilt from the spellings of its tokens. Raises OSError.
    """
    if is_tokenizer_file(vocabulary):
        return Path(vocabulary).expanduser().read_bytes()
    text = corpus.decode(np.arange(corpus.separator))
    ends = np.cumsum(corpus.token_bytes[: corpus.separator]).tolist()
    return bpe_of([text[begin:end] for begin, end in pairwise([0, *ends])])


def bpe_of(spellings: Sequence[bytes]) -> bytes:
    """Return the tokenizer.json of a byte-level BPE with these `spellings`, in the order of the numbers.

    A token was learned as a pair of older tokens: those that the older merges leave of its bytes. No merge
    that reaches beyond the token can have come first, or the token would not have been formed.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    letter_of = {byte: letter for letter, byte in byte_of_letter().items()}
    names = ["".join(map(letter_of.__getitem__, spelling)) for spelling in spellings]
    number_of = {name: number for number, name in enumerate(names)}
    merges = [_pair(name, number_of, number) for number, name in enumerate(names) if number >= BYTES]
    tokenizer = Tokenizer(models.BPE(number_of, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer.to_str().encode()


def _pair(name: str, number_of: Mapping[str, int], number: int) -> tuple[str, str]:
    """Return the two tokens that all merges before `number` leave of the token `name`."""
    parts = list(name)
    while len(parts) > 2:
        numbers = [number_of.get(left + right, number) for left, right in pairwise(parts)]
        first = numbers.index(min(numbers))
        parts[first : first + 2] = [parts[first] + parts[first + 1]]
    left, right = parts
    return left, right
