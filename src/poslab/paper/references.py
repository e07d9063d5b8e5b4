"""References for the parts of a study, by scheme, attention and change of rotation.

Those of poslab are in references.bib beside this module. A package that adds parts has its own
references.bib among its option files, with keywords such as `keywords = {scheme logarithmic}`. Records store
a package's part by the full name of its module; keywords may use that name or the one the package declares.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from poslab.config.option_files import package_folders
from poslab.config.registry import module_name, named_in
from poslab.config.schema import ADAMW
from poslab.record.reader import Run

FILE = Path(__file__).parent / "references.bib"
ENTRY = re.compile(r"^@\w+\{([^,]+),\n.*?^\}$", re.MULTILINE | re.DOTALL)
KEYWORDS = re.compile(r",\s*keywords\s*=\s*\{([^}]*)\}")
PARTS = {"scheme": "poslab.model.positions", "attention": "poslab.model.attention"}


@dataclass(frozen=True)
class Reference:
    """An entry with the subjects that cite it, such as ("scheme", "rope")."""

    key: str
    text: str  # BibTeX, without poslab's keywords
    subjects: frozenset[tuple[str, str]]


@cache
def references() -> tuple[Reference, ...]:
    """Return all entries of the files, in order. An entry without keywords is never cited."""
    entries = []
    packages = (folder / FILE.name for folder in package_folders())
    for file in (FILE, *filter(Path.is_file, packages)):
        for match in ENTRY.finditer(file.read_text(encoding="utf-8")):
            words = KEYWORDS.search(match[0])
            subjects = (text.strip().partition(" ") for text in (words[1] if words else "").split(","))
            pairs = frozenset((kind, _part(kind, name)) for kind, _, name in subjects)
            entries.append(Reference(match[1], KEYWORDS.sub("", match[0]), pairs))
    return tuple(entries)


def _part(kind: str, name: str) -> str:
    """Return the name of a part as records store it."""
    package = PARTS.get(kind)
    return name if package is None else module_name(name, package).removeprefix(f"{package}.")


def cited(kind: str, name: str) -> tuple[str, ...]:
    """Return the keys of the references for a subject, in the order of references.bib."""
    return tuple(reference.key for reference in references() if (kind, name) in reference.subjects)


def used(runs: Iterable[Run]) -> list[tuple[str, str]]:
    """Return the subjects of these runs that may have a reference, without duplicates."""
    named = {"scheme": ("pos", "scheme"), "attention": ("attention", "kind")}
    subjects = [
        subject
        for run in runs
        for subject in (
            *((kind, name) for kind, at in named.items() for name in named_in(run.config.get(at[0]), at[1])),
            ("optimizer", optimizer(run)),
            *(("rescale", name) for name in run.rescalings),
        )
    ]
    return list(dict.fromkeys(subjects))


def optimizer(run: Run) -> str:
    """Return the name of a run's optimizer."""
    return str(run.config["trainer"].get("optimizer", ADAMW))


def bibliography(subjects: Iterable[tuple[str, str]]) -> str:
    """Return a .bib file with the entries for these subjects and those of every study, in file order."""
    cited_subjects = set(subjects)
    entries = [
        reference.text
        for reference in references()
        if reference.subjects & cited_subjects or any(kind == "always" for kind, _ in reference.subjects)
    ]
    return "\n\n".join(entries) + "\n"
