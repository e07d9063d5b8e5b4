"""The sums of losses in a run's CSV files. Losses are kept as they are: averages are made in measures.py."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from sys import intern
from typing import NamedTuple

from poslab.record.schema import EXTRAPOLATION, METRICS, POSITION, RESCALED, RESCALED_POSITION

VALIDATED = ("step", "tokens", "seconds", "validation_nll", "validation_tokens", "validation_bytes")
TRAINED = "none"  # what a rescaling is called that changes nothing: the model as trained

Row = tuple[str, ...]
Segments = Mapping[tuple[str, float], Mapping[str, "Stretch"]]  # by protocol and multiple of L, then segment


class ReportError(ValueError):
    """A report that cannot be made; the message is one line that says what to do."""


@dataclass(frozen=True)
class Validation:
    """One evaluation during training: where the run stood, and its loss."""

    step: int
    tokens: int
    seconds: float | None
    nll: float  # nats, summed
    scored: int  # tokens
    bytes: int | None

    @property
    def loss(self) -> float:
        """Nats a token."""
        return self.nll / self.scored


class Stretch(NamedTuple):
    """The loss of one segment under one protocol and length, or of one position of the window."""

    nll: float
    tokens: int
    bytes: int | None


@dataclass(frozen=True)
class RescaledMeasurement:
    """A trained model measured again under another rotation, as the model itself was measured."""

    segments: Segments = field(default_factory=dict)
    positions: Mapping[int, Stretch] = field(default_factory=dict)


def validations(path: Path) -> tuple[Validation, ...]:
    """The rows of metrics.csv that have a validation."""
    found = []
    for step, tokens, seconds, nll, scored, size in _rows(path, METRICS, VALIDATED):
        if nll and (count := _count(scored)):
            place = int(float(step)), int(float(tokens)), _optional(seconds)
            found.append(Validation(*place, float(nll), count, _count(size)))
    if any(after.tokens <= before.tokens for before, after in pairwise(found)):
        raise ReportError(f"{path.name}: its tokens do not grow from row to row")
    return tuple(found)


def segments(path: Path) -> Segments:
    """extrapolation.csv."""
    return _segments(_rows(path, EXTRAPOLATION), path.name)


def positions(path: Path) -> Mapping[int, Stretch]:
    """position.csv."""
    return _positions(_rows(path, POSITION))


def rescaled(lengths: Path, by_position: Path) -> dict[str, RescaledMeasurement]:
    """rescaled.csv and rescaled_position.csv, by rescaling; as trained is what the run's own files say."""
    scored = _by_rescaling(_rows(lengths, RESCALED))
    placed = _by_rescaling(_rows(by_position, RESCALED_POSITION))
    return {
        name: RescaledMeasurement(
            _segments(scored.get(name, []), lengths.name), _positions(placed.get(name, []))
        )
        for name in dict.fromkeys([*scored, *placed])
        if name != TRAINED
    }


def _by_rescaling(rows: Iterable[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row[0], []).append(row[1:])
    return found


def _rows(path: Path, columns: tuple[str, ...], wanted: tuple[str, ...] | None = None) -> Iterable[Row]:
    """The cells of the `wanted` columns, by default all that the file must have, in this order."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.reader(file, strict=True)
            header = next(reader, [])
            rows = [row for row in reader if row]
    except FileNotFoundError:
        raise ReportError(f"{path.name} is missing") from None
    absent = [column for column in columns if column not in header]
    if absent:
        raise ReportError(f"{path.name} has no column {absent[0]}")
    if any(len(row) != len(header) for row in rows):
        raise ReportError(f"{path.name} has a broken row")
    places = {column: place for place, column in enumerate(header)}
    return map(itemgetter(*(places[column] for column in wanted or columns)), rows)


def read_rows(path: Path, columns: tuple[str, ...]) -> list[dict[str, str]]:
    """The rows of a CSV by column. Raises ReportError where it is missing, lacks one or has a broken row."""
    return [dict(zip(columns, row, strict=True)) for row in _rows(path, columns)]


def _optional(text: str) -> float | None:
    return float(text) if text else None


def _count(text: str) -> int | None:
    return int(float(text)) if text else None


class _Counts(dict[str, int | None]):
    """Counts by their text: of the thousands in a file, few differ."""

    def __missing__(self, text: str) -> int | None:
        return self.setdefault(text, _count(text))


def _segments(rows: Iterable[Row], file: str) -> Segments:
    found: dict[tuple[str, float], dict[str, Stretch]] = {}
    lengths: dict[tuple[str, str], dict[str, Stretch]] = {}  # by the text of protocol and multiple
    kept = [row for row in rows if row[4] and row[5]]  # the others are not defined: no number
    for (protocol, multiple, _, segment, *_), stretch in zip(kept, _stretches(kept), strict=True):
        scored = lengths.get((protocol, multiple))
        if scored is None:
            scored = lengths[protocol, multiple] = found.setdefault((protocol, float(multiple)), {})
        if segment in scored:
            raise ReportError(f"{file} has segment {segment} twice")
        scored[intern(segment)] = stretch
    return found


def _positions(rows: Iterable[Row]) -> Mapping[int, Stretch]:
    kept = [row for row in rows if row[1] and row[2]]
    return dict(zip([int(row[0]) for row in kept], _stretches(kept), strict=True))


def _stretches(rows: Sequence[Row]) -> Iterable[Stretch]:
    """The nll, tokens and bytes that the rows end with, as numbers. There are millions of them."""
    nll, tokens, size = list(zip(*rows, strict=True))[-3:] if rows else ((), (), ())
    counts = _Counts()
    numbers = map(float, nll), map(counts.__getitem__, tokens), map(counts.__getitem__, size)
    return map(Stretch._make, zip(*numbers, strict=True))
