"""How much held-out text the losses by length cover, in words for the page and the terminal."""

from collections.abc import Iterable

from poslab.config.text import counted, plain
from poslab.record.reader import Run

HELD_OUT = "Held-out text"  # its label on the page and in the terminal


def held_out(runs: Iterable[Run]) -> list[str]:
    """Return how many of the requested segments were found, and from what; equal values are listed once.

    With several texts, the name of the text comes before each value.
    """
    found = dict.fromkeys((plain(run.data_name, 40), words) for run in runs if (words := _found(run)))
    several = len({text for text, _ in found}) > 1
    return [f"{text}: {words}" if several else words for text, words in found]


def _found(run: Run) -> str:
    """Return `40 of the 64 segments requested, from 12 documents`, or "" if no segment was scored."""
    options = run.config.get("evaluate") or {}
    by_length = (parts for (protocol, _), parts in run.segments.items() if protocol == "non_overlapping")
    segments = next(by_length, {})
    requested = options.get("segments")
    if not segments or not isinstance(requested, int):
        return ""
    found = f"{len(segments):,} of the {requested:,} segments requested"
    documents = len({part.document for part in segments.values() if part.document})
    if options.get("documents") == "joined":
        return f"{found}, from {counted(documents, 'group')} of concatenated documents"
    return f"{found}, from {counted(documents, 'document')}" if documents else found
