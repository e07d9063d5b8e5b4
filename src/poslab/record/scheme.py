"""What a run's record says of its scheme: biases, rotations, attention distances, rotated denominators.

A record may lack every table: older ones have none of them.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from poslab.record.files import Tables, table_records, whole_number
from poslab.record.schema import (
    ATTENTION_DISTANCE,
    POSITION_PROBE,
    ROTATED_DENOMINATORS,
    SCHEME_BIAS,
    SCHEME_BOUND,
    SCHEME_ROTATION,
    TableSchema,
)
from poslab.record.seal import DamagedError

Key = TypeVar("Key")
Entry = TypeVar("Entry")


@dataclass(frozen=True)
class Attended:
    """How far back a head attends: the sum over `queries` of the mean distance in tokens of each."""

    queries: int
    distance: float


@dataclass(frozen=True)
class Denominators:
    """What dividing by a rotated denominator would mean in a head of linear attention."""

    queries: int
    vanished: int  # queries whose rotated denominator is at or below 0
    lowest: float  # over the plain one
    weights: int
    negative: int


@dataclass(frozen=True)
class SchemeRecord:
    """What the trained scheme does. None: not on record; empty: it does nothing of the kind."""

    bias: Mapping[tuple[int, int], Mapping[int, float]] | None = None  # by layer and head, then distance
    wavelengths: Mapping[tuple[int, int], float | None] | None = None  # tokens a turn, by layer and pair
    bound: Mapping[int, Mapping[int, float]] | None = None  # by layer, then distance
    attended: Mapping[tuple[int, int], Attended] | None = None  # by layer and head
    denominators: Mapping[tuple[int, int], Denominators] | None = None  # by layer and head
    # By layer, the share of the position's variance that a linear probe of the hidden states explains.
    places: Mapping[int, float] | None = None


def scheme(tables: Tables) -> SchemeRecord:
    """The tables of what the trained scheme does."""
    return SchemeRecord(
        _biases(tables),
        _wavelengths(tables),
        _bounds(tables),
        _attended(tables),
        _denominators(tables),
        _places(tables),
    )


def _biases(tables: Tables) -> Mapping[tuple[int, int], Mapping[int, float]] | None:
    if SCHEME_BIAS.file not in tables:
        return None
    biases: dict[tuple[int, int], dict[int, float]] = {}
    for row in table_records(tables, SCHEME_BIAS):
        if row["bias"]:
            head = biases.setdefault((int(row["layer"]), int(row["head"])), {})
            _add(head, whole_number(row["distance"]), float(row["bias"]), SCHEME_BIAS)
    return biases


def _wavelengths(tables: Tables) -> Mapping[tuple[int, int], float | None] | None:
    if SCHEME_ROTATION.file not in tables:
        return None
    wavelengths: dict[tuple[int, int], float | None] = {}
    for row in table_records(tables, SCHEME_ROTATION):
        wavelength = float(row["wavelength"]) if row["wavelength"] else None
        if wavelength is not None and not wavelength > 0:
            raise DamagedError(f"{SCHEME_ROTATION.file} has a wavelength that is not above 0")
        # One turn in endlessly many tokens is no turn.
        turns = wavelength is not None and math.isfinite(wavelength)
        pair = int(row["layer"]), int(row["pair"])
        _add(wavelengths, pair, wavelength if turns else None, SCHEME_ROTATION)
    return wavelengths


def _bounds(tables: Tables) -> Mapping[int, Mapping[int, float]] | None:
    if SCHEME_BOUND.file not in tables:
        return None
    bounds: dict[int, dict[int, float]] = {}
    for row in table_records(tables, SCHEME_BOUND):
        if row["bound"]:
            layer = bounds.setdefault(int(row["layer"]), {})
            _add(layer, whole_number(row["distance"]), float(row["bound"]), SCHEME_BOUND)
    return bounds


def _attended(tables: Tables) -> Mapping[tuple[int, int], Attended] | None:
    if ATTENTION_DISTANCE.file not in tables:
        return None
    heads: dict[tuple[int, int], Attended] = {}
    records = table_records(tables, ATTENTION_DISTANCE)
    for row in records:
        queries, distance = whole_number(row["queries"]), float(row["distance"] or math.nan)
        if queries and math.isfinite(distance):
            head = int(row["layer"]), int(row["head"])
            _add(heads, head, Attended(queries, distance), ATTENTION_DISTANCE)
    return heads or (None if records else heads)


def _denominators(tables: Tables) -> Mapping[tuple[int, int], Denominators] | None:
    if ROTATED_DENOMINATORS.file not in tables:
        return None
    heads: dict[tuple[int, int], Denominators] = {}
    for row in table_records(tables, ROTATED_DENOMINATORS):
        queries, vanished, weights, negative = (
            whole_number(row[name]) for name in ("queries", "vanished", "weights", "negative")
        )
        lowest = float(row["lowest"])
        if not (vanished <= queries > 0 and negative <= weights > 0 and math.isfinite(lowest)):
            raise DamagedError(f"{ROTATED_DENOMINATORS.file} has counts or a denominator that cannot be")
        head = int(row["layer"]), int(row["head"])
        _add(heads, head, Denominators(queries, vanished, lowest, weights, negative), ROTATED_DENOMINATORS)
    return heads


def _places(tables: Tables) -> Mapping[int, float] | None:
    if POSITION_PROBE.file not in tables:
        return None
    places: dict[int, float] = {}
    for row in table_records(tables, POSITION_PROBE):
        error, deviation = float(row["squared_error"]), float(row["squared_deviation"])
        if not (0 <= error < math.inf and 0 < deviation < math.inf):
            raise DamagedError(f"{POSITION_PROBE.file} has sums of squares that cannot be")
        _add(places, int(row["layer"]), 1 - error / deviation, POSITION_PROBE)
    return places


def _add(entries: dict[Key, Entry], key: Key, value: Entry, schema: TableSchema) -> None:
    """Raises DamagedError where there is an entry already."""
    if key in entries:
        raise DamagedError(f"{schema.file} has a row twice")
    entries[key] = value
