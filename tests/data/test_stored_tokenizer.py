"""The tokenizer that a run stores gives the run's own tokens of its own text, and so of any other."""

import numpy as np

from poslab.data.cache import prepare
from poslab.data.stored_tokenizer import tokenizer_of
from support.texts import ODD, words

REPEATED = "aaaaaaa   aaaa  aa      abababa\n" * 20  # where a pair overlaps itself


def test_a_bpe_made_from_a_text_is_found_again_in_what_its_tokens_spell(tmp_path, novels, data):
    (novels / "odd.txt").write_text(ODD + REPEATED)
    made = prepare({**data, "vocabulary": 380})
    content = tokenizer_of(380, made)
    file = tmp_path / "stored.json"
    file.write_bytes(content + b"\n")
    stored = {**data, "vocabulary": str(file)}
    again = prepare(stored)
    assert again.directory != made.directory
    assert again.fingerprint == made.fingerprint  # of all tokens
    assert tokenizer_of(str(file), again) == content + b"\n"  # as it is
    # Another text is cut by it as well, though its own BPE would be another one.
    other = tmp_path / "other.txt"
    other.write_text(words(3000, 77).upper())
    cut = prepare({**stored, "path": str(other)})
    assert (cut.vocabulary, cut.separator) == (made.vocabulary, made.separator)
    assert np.array_equal(cut.token_bytes, made.token_bytes)
    assert cut.decode(cut.train) + cut.decode(cut.validation) == other.read_bytes()
