"""The sums of losses in a run's CSV files. The averages are in measures.py."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from sys import intern
from typing import NamedTuple

from poslab.record.files import Row, Tables, table_rows
from poslab.record.schema import EXTRAPOLATION, METRICS, POSITION, RESCALED, RESCALED_POSITION
from poslab.record.seal import DamagedError

VALIDATED = ("step", "tokens", "seconds", "validation_nll", "validation_tokens", "validation_bytes")
TRAINED = "none"  # what a rescaling is called that changes nothing: the model as trained

Segments = Mapping[tuple[str, float], Mapping[str, "LossSum"]]  # by protocol and multiple of L, then segment


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
        """Nats per token."""
        return self.nll / self.scored


class LossSum(NamedTuple):
    """The loss of one segment under one protocol and length, or of one position of the window."""

    nll: float
    tokens: int
    bytes: int | None
    document: str = ""  # of the segment; older records lack it


@dataclass(frozen=True)
class RescaledMeasurement:
    """A trained model measured again under another rotation, as the model itself was measured."""

    segments: Segments = field(default_factory=dict)
    positions: Mapping[int, LossSum] = field(default_factory=dict)


def validations(tables: Tables) -> tuple[Validation, ...]:
    """Return the validations in metrics.csv. Raises DamagedError, as all readers of tables do."""
    points = []
    for step, tokens, seconds, nll, scored, size in table_rows(tables, METRICS, VALIDATED):
        if nll and (count := _count(scored)):
            place = int(float(step)), int(float(tokens)), _optional(seconds)
            points.append(Validation(*place, float(nll), count, _count(size)))
    if any(after.tokens <= before.tokens for before, after in pairwise(points)):
        raise DamagedError(f"{METRICS.file}: its tokens do not grow from row to row")
    return tuple(points)


def segments(tables: Tables) -> Segments:
    """extrapolation.csv."""
    columns = (*EXTRAPOLATION.columns, *EXTRAPOLATION.optional)
    return _segments(table_rows(tables, EXTRAPOLATION, columns), EXTRAPOLATION.file)


def positions(tables: Tables) -> Mapping[int, LossSum]:
    """position.csv."""
    return _positions(table_rows(tables, POSITION))


def rescaled(tables: Tables) -> dict[str, RescaledMeasurement]:
    """rescaled.csv and rescaled_position.csv, by rescaling; as trained is in the run's own files."""
    lengths = _by_rescaling(table_rows(tables, RESCALED, (*RESCALED.columns, *RESCALED.optional)))
    by_position = _by_rescaling(table_rows(tables, RESCALED_POSITION))
    return {
        name: RescaledMeasurement(
            _segments(lengths.get(name, []), RESCALED.file), _positions(by_position.get(name, []))
        )
        for name in dict.fromkeys([*lengths, *by_position])
        if name != TRAINED
    }


def _by_rescaling(rows: Iterable[Row]) -> dict[str, list[Row]]:
    grouped: dict[str, list[Row]] = {}
    for row in rows:
        grouped.setdefault(row[0], []).append(row[1:])
    return grouped


def _optional(text: str) -> float | None:
    return float(text) if text else None


@cache  # of the thousands in a file, few differ
def _count(text: str) -> int | None:
    return int(float(text)) if text else None


def _segments(rows: Iterable[Row], file: str) -> Segments:
    measured: dict[tuple[str, float], dict[str, LossSum]] = {}
    lengths: dict[tuple[str, str], dict[str, LossSum]] = {}  # by the text of protocol and multiple
    defined = [row for row in rows if row[4] and row[5]]  # the others have no number
    for (protocol, multiple, _, segment, *_), loss in zip(defined, _loss_sums(defined), strict=True):
        scored = lengths.get((protocol, multiple))
        if scored is None:
            scored = lengths[protocol, multiple] = measured.setdefault((protocol, float(multiple)), {})
        if segment in scored:
            raise DamagedError(f"{file} has segment {segment} twice")
        scored[intern(segment)] = loss
    return measured


def _positions(rows: Iterable[Row]) -> Mapping[int, LossSum]:
    defined = [(*row, "") for row in rows if row[1] and row[2]]
    return dict(zip([int(row[0]) for row in defined], _loss_sums(defined), strict=True))


def _loss_sums(rows: Sequence[Row]) -> Iterable[LossSum]:
    """The nll, tokens, bytes and document that the rows end with. There are millions of them."""
    nll, tokens, size, document = list(zip(*rows, strict=True))[-4:] if rows else ((),) * 4
    numbers = map(float, nll), map(_count, tokens), map(_count, size)
    return map(LossSum._make, zip(*numbers, map(intern, document), strict=True))
