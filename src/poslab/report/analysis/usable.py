"""Usable length against one fixed loss for the whole study, beside that against each run's own loss at L.

A model that never used its context has little to lose past L, and a long usable length by its own loss. One
loss for all, the reference's at L and a little more, is not met by being bad at L already.
"""

from collections.abc import Iterable, Mapping

from poslab.record import measures
from poslab.record.measures import Value
from poslab.record.reader import Run
from poslab.report.analysis.estimates import FIXED
from poslab.report.analysis.statistics import estimate

TOLERANCE = measures.TOLERANCES[""]  # over the reference's loss at L


def fixed_limit(reference: Iterable[Mapping[str, Value]]) -> float | None:
    """The highest usable loss in nats a token: 5 % over the mean of the reference's sliding losses at L.

    `reference` is the rows of its finished runs, one a seed; None where none of them has such a loss.
    """
    losses = [float(loss) for row in reference if isinstance(loss := row.get("sliding_1x"), int | float)]
    mean = estimate(losses)
    return None if mean is None else (1 + TOLERANCE) * mean.mean


def fixed_length(run: Run, limit: float | None) -> dict[str, Value]:
    """The columns usable_length_fixed of a run's row: how far its sliding loss stays at or below `limit`."""
    return measures.usable_up_to(run, limit, FIXED)
