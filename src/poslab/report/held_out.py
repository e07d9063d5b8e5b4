"""How much of the held-out text the losses by length are of, in words for the page and the terminal."""

from collections.abc import Iterable

from poslab.config.text import counted, plain
from poslab.record.reader import Run

HELD_OUT = "Held-out text"  # what the page and the terminal call it


def held_out(runs: Iterable[Run]) -> list[str]:
    """Return how many of the segments asked for were found, and in what; each value of the runs once.

    Of several texts each value has its text before it.
    """
    found = dict.fromkeys((plain(run.data_name, 40), words) for run in runs if (words := _found(run)))
    several = len({text for text, _ in found}) > 1
    return [f"{text}: {words}" if several else words for text, words in found]


def _found(run: Run) -> str:
    """Return `40 of the 64 segments asked for, from 12 documents`; empty where none was scored."""
    options = run.config.get("evaluate") or {}
    by_length = (parts for (protocol, _), parts in run.segments.items() if protocol == "non_overlapping")
    segments = next(by_length, {})
    asked = options.get("segments")
    if not segments or not isinstance(asked, int):
        return ""
    found = f"{len(segments):,} of the {asked:,} segments asked for"
    documents = len({part.document for part in segments.values() if part.document})
    if options.get("documents") == "joined":
        return f"{found}, from {counted(documents, 'group')} of documents joined one after another"
    return f"{found}, from {counted(documents, 'document')}" if documents else found
