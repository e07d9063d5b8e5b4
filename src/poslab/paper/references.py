"""Who is cited for what a study used: references.bib by scheme, attention and change of rotation."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from poslab.record.reader import Run

FILE = Path(__file__).parent / "references.bib"
ENTRY = re.compile(r"^@\w+\{([^,]+),\n.*?^\}$", re.MULTILINE | re.DOTALL)
KEYWORDS = re.compile(r",\n  keywords\s*= \{([^}]*)\}", re.DOTALL)


@dataclass(frozen=True)
class Reference:
    """An entry, and what it is cited for: ("scheme", "rope")."""

    key: str
    text: str  # BibTeX, without our keywords
    subjects: frozenset[tuple[str, str]]


@cache
def references() -> tuple[Reference, ...]:
    """Every entry of references.bib, in its order."""
    entries = []
    for match in ENTRY.finditer(FILE.read_text(encoding="utf-8")):
        words = KEYWORDS.search(match[0])
        assert words is not None, match[1]
        subjects = (one.split() for one in words[1].split(","))
        pairs = frozenset((kind, name) for kind, name in subjects)
        entries.append(Reference(match[1], KEYWORDS.sub("", match[0]), pairs))
    return tuple(entries)


def cited(kind: str, name: str) -> tuple[str, ...]:
    """The keys of what is cited for it, in the order of references.bib; none where nothing is known."""
    return tuple(one.key for one in references() if (kind, name) in one.subjects)


def used(runs: Iterable[Run]) -> dict[tuple[str, str], None]:
    """Everything that these runs used and that may have a source, each once."""
    subjects: dict[tuple[str, str], None] = {}
    for run in runs:
        subjects |= dict.fromkeys(("scheme", name) for name in _schemes(run.config.get("pos")))
        attention = run.config.get("attention")
        if isinstance(attention, Mapping):
            subjects[("attention", str(attention.get("kind")))] = None
        subjects |= dict.fromkeys(("rescale", name) for name in run.rescalings if name != "none")
    return subjects


def bibliography(subjects: Iterable[tuple[str, str]]) -> str:
    """A .bib file with the entries of all these and of what every run has, in the order of references.bib."""
    wanted = set(subjects)
    shown = [
        one.text
        for one in references()
        if one.subjects & wanted or any(kind == "always" for kind, _ in one.subjects)
    ]
    return "\n\n".join(shown) + "\n"


def without_source(subjects: Sequence[tuple[str, str]]) -> list[str]:
    """The names among them that references.bib has no entry for."""
    return [name for kind, name in subjects if not cited(kind, name)]


def _schemes(options: Any) -> Iterator[str]:
    """The scheme of these options and every scheme inside it."""
    if isinstance(options, Mapping):
        if isinstance(options.get("scheme"), str):
            yield options["scheme"]
        for value in options.values():
            yield from _schemes(value)
