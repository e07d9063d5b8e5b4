"""What a run's record says of its scheme: what the probe retrieved, biases, rotations, attention distances.

Every file may be missing: older records lack them all, and the probe is there only where it was asked for.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from poslab.record.losses import ReportError, read_rows
from poslab.record.schema import ATTENTION_DISTANCE, PROBE, SCHEME_BIAS, SCHEME_BOUND, SCHEME_ROTATION

Key = TypeVar("Key")
Entry = TypeVar("Entry")


@dataclass(frozen=True)
class Retrieved:
    """What was retrieved of one task at one length and depth, or summed over several depths."""

    length: int  # tokens
    samples: int
    exact: int  # samples whose every answer token was the most likely one
    correct: int  # answer tokens that were the most likely one
    nll: float  # nats of the answer tokens, summed
    tokens: int  # answer tokens


Probe = Mapping[tuple[str, float, float], Retrieved]  # by task, multiple of L and depth


@dataclass(frozen=True)
class Attended:
    """How far back a head attends: the sum over `queries` of the mean distance in tokens of each."""

    queries: int
    distance: float


@dataclass(frozen=True)
class SchemeRecord:
    """What the trained scheme does. None: not on record; empty: it does nothing of the kind."""

    bias: Mapping[tuple[int, int], Mapping[int, float]] | None = None  # by layer and head, then distance
    wavelengths: Mapping[tuple[int, int], float | None] | None = None  # tokens a turn, by layer and pair
    bound: Mapping[int, Mapping[int, float]] | None = None  # by layer, then distance
    attended: Mapping[tuple[int, int], Attended] | None = None  # by layer and head


def probe(path: Path) -> Probe:
    """probe.csv; what was not measured, such as past the end of a scheme, has no entry."""
    found: dict[tuple[str, float, float], Retrieved] = {}
    for row in read_rows(path, PROBE) if path.exists() else ():
        samples, tokens = _whole(row["samples"]), _whole(row["tokens"])
        if not samples or not tokens:
            continue  # not defined: no number
        key = (row["task"], float(row["multiple"]), float(row["depth"]))
        one = Retrieved(
            _whole(row["length"]),
            samples,
            _whole(row["exact"]),
            _whole(row["correct"]),
            float(row["nll"]),
            tokens,
        )
        if not 0 <= one.exact <= samples or not 0 <= one.correct <= tokens:
            raise ReportError(f"{path.name} has more found than asked for")
        if key in found:
            raise ReportError(f"{path.name} has a task, length and depth twice")
        found[key] = one
    return found


def scheme(folder: Path) -> SchemeRecord:
    """The scheme files of a run's directory."""
    return SchemeRecord(
        _biases(folder / "scheme_bias.csv"),
        _wavelengths(folder / "scheme_rotation.csv"),
        _bounds(folder / "scheme_bound.csv"),
        _attended(folder / "attention_distance.csv"),
    )


def _biases(path: Path) -> Mapping[tuple[int, int], Mapping[int, float]] | None:
    if not path.exists():
        return None
    found: dict[tuple[int, int], dict[int, float]] = {}
    for row in read_rows(path, SCHEME_BIAS):
        if row["bias"]:
            head = found.setdefault((int(row["layer"]), int(row["head"])), {})
            _once(head, _whole(row["distance"]), float(row["bias"]), path)
    return found


def _wavelengths(path: Path) -> Mapping[tuple[int, int], float | None] | None:
    if not path.exists():
        return None
    found: dict[tuple[int, int], float | None] = {}
    for row in read_rows(path, SCHEME_ROTATION):
        wavelength = float(row["wavelength"]) if row["wavelength"] else None
        if wavelength is not None and not wavelength > 0:
            raise ReportError(f"{path.name} has a wavelength that is not above 0")
        # One turn in endlessly many tokens is no turn.
        turns = wavelength is not None and math.isfinite(wavelength)
        _once(found, (int(row["layer"]), int(row["pair"])), wavelength if turns else None, path)
    return found


def _bounds(path: Path) -> Mapping[int, Mapping[int, float]] | None:
    if not path.exists():
        return None
    found: dict[int, dict[int, float]] = {}
    for row in read_rows(path, SCHEME_BOUND):
        if row["bound"]:
            layer = found.setdefault(int(row["layer"]), {})
            _once(layer, _whole(row["distance"]), float(row["bound"]), path)
    return found


def _attended(path: Path) -> Mapping[tuple[int, int], Attended] | None:
    if not path.exists():
        return None
    found: dict[tuple[int, int], Attended] = {}
    for row in read_rows(path, ATTENTION_DISTANCE):
        queries, distance = _whole(row["queries"]), float(row["distance"] or math.nan)
        if queries and math.isfinite(distance):
            one = Attended(queries, distance)
            _once(found, (int(row["layer"]), int(row["head"])), one, path)
    return found


def _once(found: dict[Key, Entry], key: Key, value: Entry, path: Path) -> None:
    if key in found:
        raise ReportError(f"{path.name} has a row twice")
    found[key] = value


def _whole(text: str) -> int:
    """A count; an empty cell counts nothing."""
    return int(float(text)) if text else 0
