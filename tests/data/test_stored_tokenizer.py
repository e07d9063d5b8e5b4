"""The tokenizer stored by a run gives the run's tokens for its own text, and encodes any other."""

import numpy as np

from poslab.data.cache import prepare
from support.texts import ODD, words


def test_a_bpe_of_a_text_is_stored_and_encodes_any_text(tmp_path, novels, data):
    (novels / "odd.txt").write_text(ODD)
    made = prepare({**data, "vocabulary": 310})
    content = made.tokenizer()
    file = tmp_path / "stored.json"
    file.write_bytes(content + b"\n")
    stored = {**data, "vocabulary": str(file)}
    again = prepare(stored)
    assert again.directory != made.directory
    assert again.fingerprint == made.fingerprint  # of all tokens
    assert again.tokenizer() == content + b"\n"  # unchanged
    # It also encodes another text, which would have another BPE of its own.
    other = tmp_path / "other.txt"
    other.write_text(words(3000, 77).upper())
    cut = prepare({**stored, "path": str(other)})
    assert (cut.vocabulary, cut.separator) == (made.vocabulary, made.separator)
    assert np.array_equal(cut.token_bytes, made.token_bytes)
    assert cut.decode(cut.train) + cut.decode(cut.validation) == other.read_bytes()
