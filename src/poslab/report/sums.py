"""The sums of losses in a run's CSV files. Losses are kept as they are: averages are made in measures.py."""

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from poslab.record import EXTRAPOLATION, METRICS, POSITION, RESCALED, RESCALED_POSITION

TRAINED = "none"  # what a rescaling is called that changes nothing: the model as trained

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


@dataclass(frozen=True)
class Stretch:
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
    for row in read_rows(path, METRICS):
        nll, scored = _optional(row["validation_nll"]), _count(row["validation_tokens"])
        if nll is None or not scored:
            continue
        step, tokens = int(float(row["step"])), int(float(row["tokens"]))
        found.append(
            Validation(step, tokens, _optional(row["seconds"]), nll, scored, _count(row["validation_bytes"]))
        )
    if any(after.tokens <= before.tokens for before, after in pairwise(found)):
        raise ReportError(f"{path.name}: its tokens do not grow from row to row")
    return tuple(found)


def segments(path: Path) -> Segments:
    """extrapolation.csv."""
    return _segments(read_rows(path, EXTRAPOLATION), path.name)


def positions(path: Path) -> Mapping[int, Stretch]:
    """position.csv."""
    return _positions(read_rows(path, POSITION))


def rescaled(lengths: Path, by_position: Path) -> dict[str, RescaledMeasurement]:
    """rescaled.csv and rescaled_position.csv, by rescaling; as trained is what the run's own files say."""
    scored = _by_rescaling(read_rows(lengths, RESCALED))
    placed = _by_rescaling(read_rows(by_position, RESCALED_POSITION))
    return {
        name: RescaledMeasurement(
            _segments(scored.get(name, ()), lengths.name), _positions(placed.get(name, ()))
        )
        for name in dict.fromkeys([*scored, *placed])
        if name != TRAINED
    }


def _by_rescaling(rows: Iterable[dict[str, str]]) -> dict[str, list[dict[str, str]]]:
    found: dict[str, list[dict[str, str]]] = {}
    for row in rows:
        found.setdefault(row["rescale"], []).append(row)
    return found


def read_rows(path: Path, columns: tuple[str, ...]) -> list[dict[str, str]]:
    """The rows of a CSV. Raises ReportError where it is missing, lacks a column or has a broken row."""
    try:
        with path.open(newline="") as file:
            reader = csv.DictReader(file, strict=True)
            rows = list(reader)
            header = reader.fieldnames or []
    except FileNotFoundError:
        raise ReportError(f"{path.name} is missing") from None
    absent = [column for column in columns if column not in header]
    if absent:
        raise ReportError(f"{path.name} has no column {absent[0]}")
    if any(None in row or None in row.values() for row in rows):
        raise ReportError(f"{path.name} has a broken row")
    return rows


def _optional(text: str) -> float | None:
    return float(text) if text else None


def _count(text: str) -> int | None:
    return int(float(text)) if text else None


def _stretch(row: Mapping[str, str]) -> Stretch:
    return Stretch(float(row["nll"]), int(float(row["tokens"])), _count(row["bytes"]))


def _segments(rows: Iterable[Mapping[str, str]], file: str) -> Segments:
    found: dict[tuple[str, float], dict[str, Stretch]] = {}
    for row in rows:
        if not row["nll"] or not row["tokens"]:
            continue  # not defined: no number
        scored = found.setdefault((row["protocol"], float(row["multiple"])), {})
        if row["segment"] in scored:
            raise ReportError(f"{file} has segment {row['segment']} twice")
        scored[row["segment"]] = _stretch(row)
    return found


def _positions(rows: Iterable[Mapping[str, str]]) -> Mapping[int, Stretch]:
    return {int(row["position"]): _stretch(row) for row in rows if row["nll"] and row["tokens"]}
