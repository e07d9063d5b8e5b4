"""Arms of made-up losses by seed and document, without a study on disk."""

import numpy as np

from poslab.analysis.arms import Arm
from poslab.analysis.estimates import ArmFigures
from poslab.record.facts import Manifest
from poslab.record.losses import LossSum
from poslab.record.reader import Run

FIGURE = "sliding_8x"
ONE_EACH = [1] * 20  # segments of each document


def of_rows(label: str, *rows: dict[str, float]) -> ArmFigures:
    """Return an arm with made-up figures, a row for each seed."""
    return ArmFigures(
        Arm(label, "", "", (), {}), {}, tuple({"seed": seed, **row} for seed, row in enumerate(rows))
    )


def arm(losses: np.ndarray, counts: list[int], label: str, known: bool = True) -> ArmFigures:
    """Return an arm with losses (seed, document), equal in all segments of a document, of 16 tokens each."""
    documents = np.arange(len(counts)).repeat(counts)
    runs, rows = [], []
    for seed, by_document in enumerate(losses):
        scored = {
            str(i): LossSum(16 * float(by_document[document]), 16, 16, str(document) if known else "")
            for i, document in enumerate(documents)
        }
        shorter = {key: part._replace(nll=2.0 * part.tokens) for key, part in scored.items()}
        measured = {("sliding", 8.0): scored, ("sliding", 1.0): shorter}
        runs.append(
            Run(label, "done", manifest=Manifest(seed=seed, config={"context_length": 2}), segments=measured)
        )
        loss = sum(part.nll for part in scored.values()) / (16 * len(scored))
        gains = {"context_gain_1x": 0.0, "context_gain_8x": 2 - loss}
        rows.append({"seed": seed, FIGURE: loss, "aulc": loss, **gains})
    return ArmFigures(Arm(label, label, "", tuple(runs), {}), {}, tuple(rows))
