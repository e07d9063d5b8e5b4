"""What a run's record says of its scheme: biases and rotations.

A record may lack every table: older ones have none of them.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from poslab.record.files import Tables, table_records, whole_number
from poslab.record.schema import (
    SCHEME_BIAS,
    SCHEME_BOUND,
    SCHEME_ROTATION,
    TableSchema,
)


@dataclass(frozen=True)
class SchemeRecord:
    """What the trained scheme does. None: not on record; empty: it does nothing of the kind."""

    bias: Mapping[tuple[int, int], Mapping[int, float]] | None = None  # by layer and head, then distance
    wavelengths: Mapping[tuple[int, int], float | None] | None = None  # tokens a turn, by layer and pair
    bound: Mapping[int, Mapping[int, float]] | None = None  # by layer, then distance


def scheme(tables: Tables) -> SchemeRecord:
    """The tables of what the trained scheme does."""
    return SchemeRecord(
        _biases(tables),
        _wavelengths(tables),
        _bounds(tables),
    )


def _rows(tables: Tables, schema: TableSchema) -> list[dict[str, str]] | None:
    return table_records(tables, schema) if schema.file in tables else None


def _biases(tables: Tables) -> Mapping[tuple[int, int], Mapping[int, float]] | None:
    if (rows := _rows(tables, SCHEME_BIAS)) is None:
        return None
    biases: dict[tuple[int, int], dict[int, float]] = {}
    for row in rows:
        if row["bias"]:
            head = biases.setdefault((int(row["layer"]), int(row["head"])), {})
            head[whole_number(row["distance"])] = float(row["bias"])
    return biases


def _wavelengths(tables: Tables) -> Mapping[tuple[int, int], float | None] | None:
    if (rows := _rows(tables, SCHEME_ROTATION)) is None:
        return None
    turns = {(int(row["layer"]), int(row["pair"])): float(row["wavelength"] or math.inf) for row in rows}
    # One turn in endlessly many tokens is no turn.
    return {pair: turn if math.isfinite(turn) else None for pair, turn in turns.items()}


def _bounds(tables: Tables) -> Mapping[int, Mapping[int, float]] | None:
    if (rows := _rows(tables, SCHEME_BOUND)) is None:
        return None
    bounds: dict[int, dict[int, float]] = {}
    for row in rows:
        if row["bound"]:
            bounds.setdefault(int(row["layer"]), {})[whole_number(row["distance"])] = float(row["bound"])
    return bounds
