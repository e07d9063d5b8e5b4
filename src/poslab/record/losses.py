"""The sums of losses in a run's CSV files. The averages are in measures.py."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from sys import intern
from typing import NamedTuple

from poslab.record.files import Tables, table_rows
from poslab.record.schema import EXTRAPOLATION, METRICS, POSITION, RESCALED, RESCALED_POSITION

TRAINED = "none"  # the name of the rescaling that changes nothing: the model as trained

Row = Mapping[str, str]
Segments = Mapping[tuple[str, float], Mapping[str, "LossSum"]]  # by protocol and multiple of L, then segment


@dataclass(frozen=True)
class Validation:
    """One validation during training: the progress of the run and its loss."""

    step: int
    tokens: int
    seconds: float | None
    nll: float  # sum, in nats
    scored: int  # number of tokens in the sum
    bytes: int | None

    @property
    def loss(self) -> float:
        """Nats per token."""
        return self.nll / self.scored


class LossSum(NamedTuple):
    """The loss of one segment under one protocol and length, or at one position in the window."""

    nll: float
    tokens: int
    bytes: int | None
    document: str = ""  # the document of the segment; older records lack it


@dataclass(frozen=True)
class RescaledMeasurement:
    """The losses of a trained model under another rotation, measured as for the model itself."""

    segments: Segments = field(default_factory=dict)
    positions: Mapping[int, LossSum] = field(default_factory=dict)


def validations(tables: Tables) -> tuple[Validation, ...]:
    """Return the validations in metrics.csv. Raises DamagedError, as all functions that read tables do."""
    return tuple(
        Validation(
            step=int(float(row["step"])),
            tokens=int(float(row["tokens"])),
            seconds=float(row["seconds"]) if row["seconds"] else None,
            nll=float(row["validation_nll"]),
            scored=scored,
            bytes=_count(row["validation_bytes"]),
        )
        for row in table_rows(tables, METRICS)
        if row["validation_nll"] and (scored := _count(row["validation_tokens"]))
    )


def segments(tables: Tables) -> Segments:
    """Return the losses in extrapolation.csv, by protocol and multiple of L, and by segment."""
    return _segments(table_rows(tables, EXTRAPOLATION))


def positions(tables: Tables) -> Mapping[int, LossSum]:
    """Return the losses in position.csv, by position."""
    return _positions(table_rows(tables, POSITION))


def rescaled(tables: Tables) -> dict[str, RescaledMeasurement]:
    """Return the losses in rescaled.csv and rescaled_position.csv, by rescaling, without TRAINED."""
    lengths = _by_rescaling(table_rows(tables, RESCALED))
    by_position = _by_rescaling(table_rows(tables, RESCALED_POSITION))
    return {
        name: RescaledMeasurement(_segments(lengths[name]), _positions(by_position[name]))
        for name in dict.fromkeys([*lengths, *by_position])
        if name != TRAINED
    }


def _by_rescaling(rows: Iterable[Row]) -> dict[str, list[Row]]:
    grouped: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        grouped[row["rescale"]].append(row)
    return grouped


def _segments(rows: Iterable[Row]) -> Segments:
    measured: dict[tuple[str, float], dict[str, LossSum]] = defaultdict(dict)
    for row in _defined(rows):
        measured[row["protocol"], float(row["multiple"])][intern(row["segment"])] = _loss_sum(row)
    return dict(measured)


def _positions(rows: Iterable[Row]) -> Mapping[int, LossSum]:
    return {int(row["position"]): _loss_sum(row) for row in _defined(rows)}


def _defined(rows: Iterable[Row]) -> Iterable[Row]:
    """Return the rows with a loss and a number of tokens."""
    return (row for row in rows if row["nll"] and row["tokens"])


def _loss_sum(row: Row) -> LossSum:
    document = intern(row.get("document", ""))  # tables by position have no documents
    return LossSum(float(row["nll"]), int(float(row["tokens"])), _count(row["bytes"]), document)


def _count(text: str) -> int | None:
    return int(float(text)) if text else None
