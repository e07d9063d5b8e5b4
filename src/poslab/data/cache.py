"""Prepared texts, each stored under a hash of what decides its tokens; unfinished.py prepares one."""

import contextlib
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from poslab.config.schema import HELD_OUT, is_tokenizer_file
from poslab.data import sources, tokenizer_file
from poslab.data.corpus import FORMAT, Corpus, load
from poslab.data.directories import cache_directory
from poslab.data.documents import survey
from poslab.data.unfinished import write
from poslab.record.seal import DamagedError


def prepare(data: Mapping[str, Any]) -> Corpus:
    """Return the corpus that the section `data` of a configuration describes. Raises ConfigError."""
    source = sources.find(data)
    name = source.label()
    content = None if source.pinned else survey(source).digest
    directory = cache_directory() / _key(source, content)[:32]
    with contextlib.suppress(DamagedError):  # another process may be writing it again
        if corpus := load(directory, name):
            return corpus
    return write(source, content, directory)


def _key(source: sources.TextSource, content: str | None) -> str:
    """Return a hash of what decides the tokens; `content` is the digest of a text that options do not pin."""
    decided_by = (
        source.model_dump(mode="json", exclude={"windows"})
        if content is None
        else {"vocabulary": source.vocabulary, "held_out": source.held_out}
    )
    if source.held_out == HELD_OUT:
        del decided_by["held_out"]  # keys from before this setting existed lack it
    if is_tokenizer_file(source.vocabulary):
        decided_by["vocabulary"] = tokenizer_file.digest(Path(str(source.vocabulary)))
    if source.vocabulary != "bytes":
        decided_by["stored"] = "tokenizer.json"  # texts prepared by older versions lack it: their keys differ
    return hashlib.sha256(json.dumps([FORMAT, decided_by, content], sort_keys=True).encode()).hexdigest()
