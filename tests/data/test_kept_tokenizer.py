"""The tokenizer that a run keeps gives the run's own tokens of its own text, and so of any other."""

import numpy as np
import pytest

from poslab.data.cache import prepare
from poslab.data.kept_tokenizer import tokenizer_of
from support.texts import ODD, options, words

REPEATED = "aaaaaaa   aaaa  aa      abababa\n" * 20  # where a pair overlaps itself


@pytest.mark.parametrize("entries", [300, 380])
def test_a_bpe_made_from_a_text_is_found_again_in_what_its_tokens_spell(entries, tmp_path, novels):
    (novels / "odd.txt").write_text(ODD + REPEATED)
    made = prepare(options("text", path=str(novels), vocabulary=entries))
    content = tokenizer_of(entries, made)
    assert content is not None
    (tmp_path / "kept.json").write_bytes(content)
    kept = options("text", path=str(novels), vocabulary=str(tmp_path / "kept.json"))
    again = prepare(kept)
    assert again.directory != made.directory
    assert again.fingerprint == made.fingerprint
    for part in ("train", "validation"):
        assert np.array_equal(getattr(again, part), getattr(made, part))
    # Another text is cut by it as well, though its own BPE would be another one.
    other = tmp_path / "other.txt"
    other.write_text(words(3000, 77).upper())
    cut = prepare({**kept, "path": str(other)})
    assert (cut.vocabulary, cut.separator) == (made.vocabulary, made.separator)
    assert np.array_equal(cut.token_bytes, made.token_bytes)
    assert cut.decode(cut.train) + cut.decode(cut.validation) == other.read_bytes()


def test_bytes_need_none_and_a_file_is_kept_as_it_is(tmp_path, novels):
    made = prepare(options("text", path=str(novels), vocabulary="bytes"))
    (tmp_path / "mine.json").write_text('{"model": {}}')
    assert tokenizer_of(str(tmp_path / "mine.json"), made) == b'{"model": {}}'
