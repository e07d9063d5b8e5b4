"""Prepared texts, each stored under a hash of what decides its tokens; unfinished.py prepares one."""

import contextlib
import hashlib
import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from poslab.config.schema import HELD_OUT, is_tokenizer_file
from poslab.data import sources, tokenizer_file
from poslab.data.corpus import FORMAT, Corpus, load
from poslab.data.directories import cache_directory, planning_directory
from poslab.data.documents import survey
from poslab.data.unfinished import write
from poslab.record.remembered import Remembered
from poslab.record.seal import DamagedError

TEXTS = 1000  # the most texts with a remembered digest


def prepare(data: Mapping[str, Any]) -> Corpus:
    """Return the corpus that the section `data` of a configuration describes. Raises ConfigError."""
    source = sources.find(data)
    name = source.label()
    content = None if source.pinned else _content(source)
    directory = cache_directory() / _key(source, content)[:32]
    with contextlib.suppress(DamagedError):  # another process may be writing it again
        if corpus := load(directory, name):
            return corpus
    return write(source, content, directory)


def _content(source: sources.TextSource) -> str:
    """Return the SHA-256 of a text. A text in files that have not changed is not read again."""
    before = source.files_state()
    if before is None:
        return survey(source).digest
    options = source.model_dump(mode="json", exclude={"path", "vocabulary", "windows", "held_out"})
    about = [FORMAT, platform.node(), source.label(), options, before]
    key = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()
    known = Remembered(planning_directory() / "texts.json", TEXTS)
    if known.get(key) is None:
        known.put(key, survey(source).digest)
        known.save()
    return str(known.get(key))


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
