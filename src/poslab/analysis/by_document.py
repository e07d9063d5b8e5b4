"""Losses of one model with the noise of the text alone, over the documents that it was scored on.

A model that poslab has not trained has no seeds: what may change its figures is which documents are scored.
"""

import math
from collections.abc import Sequence

from scipy.special import stdtrit

from poslab.analysis.arms import Arm
from poslab.analysis.estimates import ArmFigures
from poslab.analysis.rescalings import label, measured
from poslab.analysis.sheets import Row
from poslab.analysis.spread import text_noise
from poslab.analysis.statistics import CONFIDENCE
from poslab.record.losses import TRAINED
from poslab.record.measures import Value, mean_bits, name
from poslab.record.reader import Run

FAMILY = "sliding_bits_per_byte"


def by_document(run: Run, multiples: Sequence[float]) -> list[Row]:
    """Return a row per rotation: bits per byte in sliding windows, and their change from as trained.

    Half widths are those of 95 % intervals over documents; a change is taken document by document
    (poslab.analysis.spread.text_noise).
    """
    return [_row(run, rescale, multiples) for rescale in (TRAINED, *run.rescalings)]


def _row(run: Run, rescale: str, multiples: Sequence[float]) -> Row:
    line, trained = (_alone(measured(run, each)) for each in (rescale, TRAINED))
    row: dict[str, Value] = {"rescale": rescale, "line": label(rescale, run.config)}
    for k in multiples:
        bits, base = (_bits(item, k) for item in (line, trained))
        if bits is None or base is None:
            continue
        key = f"{FAMILY}_{name(k)}"
        row[f"{key}_mean"], row[f"{key}_half_width"] = bits, _half_width([(line, 1)], key, run.seed)
        if rescale != TRAINED:
            change = _half_width([(line, 1), (trained, -1)], key, run.seed)
            row[f"change_{name(k)}_mean"], row[f"change_{name(k)}_half_width"] = bits - base, change
    return row


def _alone(run: Run) -> ArmFigures:
    return ArmFigures(Arm(run.pos, run.pos, run.attention, (run,), {}), {}, ())


def _bits(item: ArmFigures, k: float) -> float | None:
    (run,) = item.arm.finished
    return mean_bits(run.segments.get(("sliding", k), {}).values())


def _half_width(signed: Sequence[tuple[ArmFigures, float]], figure: str, seed: int) -> float | None:
    noise = text_noise(signed, {figure: 1}, {seed}, by_segment=False)
    if noise is None:
        return None
    return float(stdtrit(noise.freedom, (1 + CONFIDENCE) / 2)) * math.sqrt(noise.variance)
