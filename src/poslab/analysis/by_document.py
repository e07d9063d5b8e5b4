"""Losses of one model with the noise of the text only, over the documents on which it was scored.

A model that poslab has not trained has no seeds: only the choice of documents may change its figures.
"""

from collections.abc import Mapping, Sequence

from poslab.analysis.rescalings import label, measured
from poslab.analysis.sheets import Row
from poslab.analysis.spread import noise_of_losses
from poslab.analysis.statistics import of_variances
from poslab.record.losses import TRAINED, LossSum
from poslab.record.measures import Value, mean_bits, name
from poslab.record.reader import Run

FAMILY = "sliding_bits_per_byte"


def by_document(run: Run, multiples: Sequence[float]) -> list[Row]:
    """Return a row per rotation: bits per byte in sliding windows, and their change from those as trained.

    Half widths are those of 95 % intervals over documents. A change is computed document by document
    (poslab.analysis.spread.noise_of_losses).
    """
    return [_row(run, rescale, multiples) for rescale in (TRAINED, *run.rescalings)]


def _row(run: Run, rescale: str, multiples: Sequence[float]) -> Row:
    row: dict[str, Value] = {"rescale": rescale, "line": label(rescale, run.config)}
    for k in multiples:
        line, trained = (
            measured(run, rotation).segments.get(("sliding", k), {}) for rotation in (rescale, TRAINED)
        )
        bits, base = (mean_bits(scored.values()) for scored in (line, trained))
        if bits is None or base is None:
            continue
        key = f"{FAMILY}_{name(k)}"
        row[f"{key}_mean"], row[f"{key}_half_width"] = bits, _half_width([(line, 1, True)])
        if rescale != TRAINED:
            change = _half_width([(line, 1, True), (trained, -1, True)])
            row[f"change_{name(k)}_mean"], row[f"change_{name(k)}_half_width"] = bits - base, change
    return row


def _half_width(signed: Sequence[tuple[Mapping[str, LossSum], float, bool]]) -> float | None:
    noise = noise_of_losses(signed)
    return None if noise is None else of_variances(0.0, [noise])[0]
