"""Records of made-up runs, for reports without training."""

import hashlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from poslab.analysis.results import Results
from poslab.measures.attention_distance import AttentionDistance
from poslab.measures.position_probe import PositionProbe
from poslab.measures.retrieval import Retrieval
from poslab.measures.rotated_denominators import RotatedDenominators
from poslab.measures.scheme_bias import Bias
from poslab.measures.scheme_bound import Bound
from poslab.measures.scheme_rotation import Rotation
from poslab.record.files import write_sealed
from poslab.record.manifest import read_manifest
from poslab.record.schema import (
    EXTRAPOLATION,
    FORMAT,
    METRICS,
    POSITION,
    RESCALED,
    RESCALED_POSITION,
)
from poslab.record.writer import RunRecord
from poslab.report.document import Document, Section
from poslab.report.sections.answer import sentences
from poslab.report.sections.contents import document
from poslab.report.verdict import convergence, extrapolation

L, BATCH, STEPS = 8, 2, 100

BUDGET = L * BATCH * STEPS

# The sliding loss at L, 2 L, 4 L and 8 L; the other protocol loses 0.1 more.
FLAT = {1.0: 2.0, 2.0: 2.0, 4.0: 2.05, 8.0: 2.06}

STEEP = {1.0: 1.5, 2.0: 1.56, 4.0: 2.0, 8.0: 2.5}


def write_run(
    runs: Path,
    name: str,
    pos: str = "rope",
    seed: int = 0,
    study: str = "made_up",
    sliding: dict[float, float] = FLAT,
    shift: float = 0.0,
    curve: list[float] | None = None,
    config: dict[str, Any] | None = None,
    tables: Mapping[Any, list[Any]] | None = None,
    **manifest: Any,
) -> Path:
    """Write a finished run with a validation loss of 3 - progress unless `curve` is given.

    `tables` has the rows of further tables, or other rows for those that every run has.
    """
    record = RunRecord(runs / study / name)
    whole: dict[str, Any] = {
        "context_length": L,
        "seed": seed,
        "pos": {"name": pos},
        "attention": {"name": "softmax"},
        "data": {"name": "stdlib", "path": "/home/somebody/texts/corpus.txt"},
        "model": {"layers": 2, "width": 16, "heads": 2},
        "trainer": {"max_steps": STEPS, "batch_size": BATCH, "learning_rate": 0.002},
        **(config or {}),
    }
    fields: dict[str, Any] = {
        "format": FORMAT,
        "study": study,
        "run": name,
        "status": "done",
        "reason": None,
        "pos": pos,
        "attention": "softmax",
        "seed": seed,
        "config": whole,
        "code": "c0de",
        "data": {"name": "stdlib", "fingerprint": "f00d", "vocabulary": 256},
        "versions": {"torch": "2.13.0"},
        "device": "cpu",
        "kernel": "reference",
        "precision": "float32",
        "parameters": 1000,
        "tokens": BUDGET,
        "flops": 6e6,
        "seconds": 10.0,
        "started": "2026-01-01T00:00:00+00:00",
        "finished": "2026-01-01T00:01:00+00:00",
        "max_length": None,
        "wandb": None,
    }
    record.update(**(fields | manifest))
    length = whole["context_length"]
    numbers = 20 if manifest.get("status") == "diverged" else 101
    losses = curve or [3 - i / 100 + shift if i < numbers else math.nan for i in range(101)]
    points = [
        {
            "step": i,
            "tokens": i * BATCH * length,
            "seconds": i / 10,
            "validation_nll": 10 * loss,
            "validation_tokens": 10,
            "validation_bytes": 10,
        }
        for i, loss in enumerate(losses)
    ]
    longest = int(max(sliding) * length)
    positions = position_rows([2 + shift + (p >= 2 * length) for p in range(longest)])
    own = {METRICS: points, EXTRAPOLATION: length_rows(sliding, length, shift), POSITION: positions}
    for schema, rows in (own | dict(tables or {})).items():
        record.write_table(schema, rows)
    return seal(record.directory)


def seal(directory: Path) -> Path:
    """List a run's current tables in its manifest; return the directory."""
    record = RunRecord(directory, read_manifest(directory))
    tables = sorted(directory.glob("*.csv"))
    record.update(files={path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in tables})
    return directory


def length_rows(sliding: dict[float, float], length: int = L, shift: float = 0.0) -> list[dict[str, Any]]:
    """Return rows of extrapolation.csv, from the sliding loss at each multiple of `length`."""
    rows = []
    for k, loss in sliding.items():
        # Three segments of unequal difficulty; sliding windows score targets of the first only.
        for segment, extra in enumerate((0.1, 0.4, 0.1)):
            values = {"non_overlapping": loss + extra, "sliding": loss, "matched": loss + 0.1}
            for protocol, value in values.items():
                if protocol != "non_overlapping" and segment:
                    continue
                row = {"protocol": protocol, "multiple": k, "length": int(k * length), "segment": segment}
                rows.append({**row, "nll": 64 * (value + shift), "tokens": 64, "bytes": 128})
    return rows


def position_rows(losses: list[float]) -> list[dict[str, Any]]:
    """Return rows of position.csv, from the loss at each position."""
    return [{"position": p, "nll": 4 * loss, "tokens": 4, "bytes": 8} for p, loss in enumerate(losses)]


def write_protocols(
    runs: Path,
    name: str,
    sliding: dict[float, float],
    plain: dict[float, float],
    bytes_a_token: int = 2,
    **more: Any,
) -> Path:
    """Write a finished run with a loss by multiple of L in each protocol, sliding and non-overlapping."""
    losses = {"sliding": sliding, "non_overlapping": plain}
    rows = [
        {"protocol": protocol, "multiple": k, "length": int(k * L), "segment": 0, "nll": 64 * loss,
         "tokens": 64, "bytes": 64 * bytes_a_token}
        for protocol, by_length in losses.items()
        for k, loss in by_length.items()
    ]  # fmt: skip
    return write_run(runs, name, sliding=sliding, tables={EXTRAPOLATION: rows}, **more)


def plan(
    runs: Path, names: list[str], reference: str | None = None, study: str = "made_up", **more: Any
) -> None:
    facts = {"study": study, "runs": names, "reference": reference, **more}
    write_sealed(runs / study / "study.json", facts)


def words(results: Results) -> str:
    """Return all claims of a report as text."""
    return " ".join([*sentences(results), *extrapolation(results), *convergence(results)])


def terminal_rows(made: Document) -> list[dict[str, str]]:
    """Return the rows of arms in the terminal, by the titles of its columns."""
    titles = [column.title for column in made.terminal.columns]
    return [dict(zip(titles, (cell.text for cell in row), strict=True)) for row in made.terminal.rows]


def row_of(results: Results, run: str) -> dict[str, Any]:
    return dict(next(row for row in results.rows if row["run"] == run))


def contents(folder: Path) -> dict[str, bytes]:
    """Return the content of every file below the folder, by relative path."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def answers(exact: dict[tuple[float, float], int], task: str = "passkey", nats: float = 1.0) -> list[Any]:
    """Return rows of probe.csv, from how many of 10 samples are exact at a multiple of L and depth."""
    return [
        {
            "task": task,
            "multiple": f"{k:g}",
            "length": int(k * L),
            "depth": f"{depth:g}",
            "samples": 10,
            "exact": found,
            "correct": 5 * found,
            "nll": 50 * nats,
            "tokens": 50,
        }
        for (k, depth), found in exact.items()
    ]


def biases(slopes: list[float], distances: list[int], layer: int = 0) -> list[Any]:
    return [
        {"layer": layer, "head": head, "distance": distance, "bias": -slope * distance}
        for head, slope in enumerate(slopes)
        for distance in distances
    ]


def turns(wavelengths: list[float | None], layer: int = 0) -> list[Any]:
    return [{"layer": layer, "pair": i, "wavelength": length} for i, length in enumerate(wavelengths)]


def bounds(values: dict[int, float], layer: int = 0) -> list[Any]:
    return [{"layer": layer, "distance": distance, "bound": bound} for distance, bound in values.items()]


def reaches(distances: list[list[float]]) -> list[Any]:
    """Return rows of attention_distance.csv, from the mean distance of each layer's heads over 40 queries."""
    return [
        {"layer": layer, "head": head, "queries": 40, "distance": 40 * distance}
        for layer, heads in enumerate(distances)
        for head, distance in enumerate(heads)
    ]


def scheme_section(results: Results) -> Section | None:
    """Return the section of the report on trained schemes."""
    return next((one for one in document(results).sections if one.name == "schemes"), None)


def of_schemes(results: Results, name: str) -> Any:
    """Return the chart with that name, or the table with that title, in the section on trained schemes."""
    section = scheme_section(results)
    shown = {**{one.name: one for one in section.charts}, **{one.title: one for one in section.tables}}
    return shown[name]


OF_ALL = {
    "bias": Bias,
    "rotation": Rotation,
    "bound": Bound,
    "distance": AttentionDistance,
    "places": PositionProbe,
}


def write_scheme(runs: Path, name: str, probe: list[Any] | None = None, **more: Any) -> Path:
    """Write a finished run with the tables of OF_ALL, empty by default, and others if they have rows."""
    tables = {measured.table: more.pop(word, []) for word, measured in OF_ALL.items()}
    if probe is not None:
        tables[Retrieval.table] = probe
    if "denominators" in more:
        tables[RotatedDenominators.table] = more.pop("denominators")
    return write_run(runs, name, tables=tables, **more)


# As trained, STEEP: the sliding loss is 1.5 at L, so 1.575 is usable, and the plateau is 2.0.
GOOD = {1.0: 1.53, 2.0: 1.54, 4.0: 1.56, 8.0: 1.57}  # within 5 % of 1.5, but over 1 % already at L

HIGH = {1.0: 2.0, 2.0: 2.0, 4.0: 2.0, 8.0: 2.0}  # a third worse everywhere

LINES = {"pi": (HIGH, 2.5), "yarn": (GOOD, 2.05)}  # sliding losses, and the loss at every position


def rescaling_config(*names: str, factor: object = 8.0, steps: int = 0) -> dict[str, Any]:
    asked = {
        "rescale": ["none", *names],
        "rescale_factor": factor,
        "recalibration_steps": steps,
        "longest": 8,
    }
    return {"evaluate": asked}


def write_rescaled(
    runs: Path, name: str, lines: dict[str, tuple[dict[float, float], float]], shift: float = 0.0, **more: Any
) -> Path:
    """Write a finished run that was also measured under other rotations."""
    directory = write_run(
        runs, name, shift=shift, **{"sliding": STEEP, "config": rescaling_config(*lines), **more}
    )
    return add_rescaled(directory, lines, shift)


def add_rescaled(
    directory: Path, lines: dict[str, tuple[dict[float, float], float]], shift: float = 0.0
) -> Path:
    """Add measurements under other rotations to a run's record."""
    lengths = [
        {"rescale": rescale, **row}
        for rescale, (sliding, _) in lines.items()
        for row in length_rows(sliding, shift=shift)
    ]
    positions = [
        {"rescale": rescale, **row}
        for rescale, (_, loss) in lines.items()
        for row in position_rows([loss + shift] * 8 * L)
    ]
    record = RunRecord(directory)
    record.write_table(RESCALED, lengths)
    record.write_table(RESCALED_POSITION, positions)
    return seal(directory)
