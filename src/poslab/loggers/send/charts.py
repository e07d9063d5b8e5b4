"""A finished record in W&B's form: rows of charts with their x axes, tables, and the run's summary.

Every number is the same as in the report on the record.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from poslab.measures import curve_of, joined, measurements
from poslab.measures import figures as measured_figures
from poslab.record import measures
from poslab.record.frames import frame
from poslab.record.measures import Value, name
from poslab.record.reader import Run
from poslab.record.summary import row as summary_row

# The x axis of each family of charts: a metric in the same row.
AXES = {
    "extrapolation/*": "extrapolation/length",
    "position/*": "position/position",
    "rescaled/*": "rescaled/length",
}
BY_LENGTH = ("loss", "bits_per_byte", "context_gain", "early_token_curse", "sliding_bits_per_byte")
# The figures of summary.csv that W&B sorts and filters runs by, in addition to losses.
HEADLINE = (
    "status",
    "reason",
    "finished",
    "validation_loss",
    "bits_per_byte_1x",
    "usable_length",
    "usable_length_1pct",
    "failure_position",
    "parameters",
    "tokens",
    "seconds",
    "tokens_per_second",
    "flops",
)
RESET = ("reason", "finished")  # sent even if empty, since an earlier stop may have set them

Row = dict[str, float]


def training_row(row: Mapping[str, Any]) -> dict[str, float]:
    """Convert a row of metrics.csv, text or numbers; losses are in nats per token and bits per byte."""
    metrics: dict[str, float] = {
        "tokens": int(row["tokens"]),
        "step": int(row["step"]),
        "seconds": float(row["seconds"]),
        "train/loss": float(row["train_nll"]) / float(row["train_tokens"]),
        "validation/loss": float(row["validation_nll"]) / float(row["validation_tokens"]),
        "optimizer/learning_rate": float(row["learning_rate"]),
        "optimizer/gradient_norm": float(row["gradient_norm"]),
        "cost/tokens_per_second": float(row["tokens_per_second"]),
    }
    if float(row["validation_bytes"]):
        bits = float(row["validation_nll"]) / math.log(2)
        metrics["validation/bits_per_byte"] = bits / float(row["validation_bytes"])
    if "memory_bytes" in row:
        metrics["cost/memory_gigabytes"] = float(row["memory_bytes"]) / 1e9
    return metrics


def wandb_key(name: str) -> str:
    """Return a name with letters, digits and underscores only, for W&B's filters: loss_0.5x is loss_0_5x."""
    return re.sub(r"[^A-Za-z0-9_]", "_", name)


def chart_rows(run: Run) -> Iterator[Row]:
    """Yield rows with one point of each chart and its x axis (see AXES).

    The number of rows is that of the points in the longest chart, since W&B counts every row as a step.
    """
    charts = (
        _extrapolation(run),
        _positions(run),
        _rescaled(run),
        *_curves(run),
    )
    for points in zip_longest(*charts, fillvalue={}):
        yield {key: value for point in points for key, value in point.items()}


def axes() -> dict[str, str]:
    """Return the x axis of each family of charts: a metric in the same row."""
    charts = [measurement for measurement in measurements() if measurement.axis]
    return AXES | {f"{chart.family}/*": f"{chart.family}/{chart.axis}" for chart in charts}


def _curves(run: Run) -> Iterator[Iterable[Row]]:
    """Yield the points of the measurements' charts, joined by x within a family."""
    families: dict[str, dict[float, Row]] = {}
    for measurement in measurements():
        if not measurement.axis or (table := frame([run], measurement.table)) is None:
            continue
        if (curve := curve_of(measurement, table)) is None:
            continue
        family, points = measurement.family, families.setdefault(measurement.family, {})
        for x, row in zip(curve.index, curve.to_dict("records"), strict=True):
            point = points.setdefault(float(x), {f"{family}/{measurement.axis}": float(x)})
            lines = {re.sub(r"[^A-Za-z0-9_/]", "_", str(line)): float(value) for line, value in row.items()}
            point |= {f"{family}/{line}": value for line, value in lines.items() if math.isfinite(value)}
    for points in families.values():
        yield [points[x] for x in sorted(points)]


def _positions(run: Run) -> Iterator[Row]:
    for position_bin in measures.position_bins(run):
        yield {"position/position": position_bin.center, "position/loss": position_bin.loss}


def _extrapolation(run: Run) -> Iterator[Row]:
    lengths = sorted({multiple for _, multiple in run.segments})
    figures = measures.extrapolation(run, lengths)
    for k in lengths:
        row = {family: figures[f"{family}_{name(k)}"] for family in BY_LENGTH}
        row["sliding_loss"] = figures[f"sliding_{name(k)}"]
        known = {f"extrapolation/{key}": value for key, value in row.items() if isinstance(value, float)}
        if known:
            yield {"extrapolation/length": k * run.context_length, **known}


def _rescaled(run: Run) -> Iterator[Row]:
    for method, measured in run.rescaled.items():
        for row in _extrapolation(replace(run, segments=measured.segments, positions=measured.positions)):
            if "extrapolation/loss" in row:
                yield {
                    "rescaled/length": row["extrapolation/length"],
                    f"rescaled/{method}/loss": row["extrapolation/loss"],
                }


def sheets(run: Run) -> dict[str, list[dict[str, Value]]]:
    """Return the tables of a run that have rows."""
    cells: dict[str, Value] = {key: value for key, value in figures(run).items() if value is not None}
    tables: dict[str, list[dict[str, Value]]] = {
        "summary": [cells] if run.segments else [],
        "extrapolation": [
            {key.removeprefix("extrapolation/"): value for key, value in row.items()}
            for row in _extrapolation(run)
        ],
        "position": [
            {"first": position_bin.first, "last": position_bin.last, "loss": position_bin.loss}
            for position_bin in measures.position_bins(run)
        ],
        "rescaled": [dict(row) for row in _rescaled(run)],
    }
    for measurement in measurements():
        table = frame([run], measurement.table)
        if table is not None and (rows := measurement.sheet(table)) is not None:
            tables[measurement.name] = rows.to_dict("records")
    return {name: rows for name, rows in tables.items() if rows}


def summary(run: Run) -> dict[str, Value]:
    """Return the figures that W&B sorts and filters the run by: about twenty, named as in summary.csv.

    They include the losses at L and beyond, for both kinds of windows; the table `summary` has all figures.
    Empty figures are left out, except those that an earlier stop may have set.
    """
    cells = figures(run)
    lengths = [k for k in measures.multiples([run]) if k >= 1]
    farthest = max((k for protocol, k in run.segments if protocol == "sliding" and k > 1), default=None)
    names = [
        *HEADLINE,
        *measured_figures([run])[run.name],
        *(f"{family}_{name(k)}" for family in ("loss", "sliding") for k in lengths),
    ]
    if farthest is not None:
        names += [f"{family}_{name(farthest)}" for family in ("context_gain", "early_token_curse")]
    chosen = {key: cells.get(key) for key in map(wandb_key, names)}
    memory = run.manifest.memory_bytes
    chosen["memory_gigabytes"] = memory / 1e9 if memory else None
    return {key: value for key, value in chosen.items() if value is not None or key in RESET}


def figures(run: Run) -> dict[str, Value]:
    """Return the run's cells of summary.csv that depend on no other run, by names that W&B accepts."""
    cells = joined(summary_row(run, None, measures.multiples([run])), measured_figures([run])[run.name])
    return {wandb_key(key): value for key, value in cells.items()}
