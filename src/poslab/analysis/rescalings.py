"""An arm's lines: its model as trained, and the same model evaluated under other rotations.

Position interpolation (Chen et al. 2023), NTK-aware and dynamic NTK scaling and YaRN (Peng et al. 2023) and
DroPE extend a trained RoPE without training it again. Their reach and cost are measured against the model as
trained: its losses at L, not those of the rescaled model, which may be bad everywhere.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from poslab.analysis.estimates import BY_LENGTH, ArmFigures, estimates
from poslab.analysis.palette import line_number
from poslab.config.text import counted, plain
from poslab.record import measures
from poslab.record.losses import TRAINED, RescaledMeasurement
from poslab.record.measures import Value
from poslab.record.reader import Run

# Names for readers, in the order in which tables list them.
NAMES = {
    TRAINED: "as trained",
    "pi": "interpolation{factor}",
    "ntk": "NTK{factor}",
    "dynamic": "dynamic NTK",
    "yarn": "YaRN{factor}",
    "drop": "RoPE dropped{recalibration}",
}
FAMILIES = (*BY_LENGTH, "loss_change", "loss_change_from_trained")


# An arm's lines, as trained first. Each is the arm under one rotation, which determines its name and look;
# the same rotation has the same look in every arm.
Lines = tuple[ArmFigures, ...]


def label(rescale: str, config: Mapping[str, Any]) -> str:
    """Return a rescaling in words: "YaRN s=8", "RoPE dropped, 50 steps of recalibration"."""
    if rescale not in NAMES:
        return plain(rescale, 60) or "unnamed"
    evaluation = config.get("evaluate") or {}
    factor, steps = evaluation.get("rescale_factor"), evaluation.get("recalibration_steps")
    if factor == "auto":
        factor = evaluation.get("longest")  # up to the longest length
    return NAMES[rescale].format(
        factor="" if factor is None else f" s={factor:g}",
        recalibration=f", {counted(steps, 'step')} of recalibration" if steps else "",
    )


def measured(run: Run, rescale: str) -> Run:
    """Return the run with its losses under one rotation; it has no losses if that was not measured."""
    if rescale == TRAINED:
        return run
    losses = run.rescaled.get(rescale, RescaledMeasurement())
    return replace(run, segments=losses.segments, positions=losses.positions)


def figures(run: Run, rescale: str, lengths: Sequence[float]) -> dict[str, Value]:
    """Return a run's figures under one rotation; usable length and failure are relative to it as trained.

    `loss_change_from_trained` is the change from the loss at L as trained: at L itself, the rescaling's cost.
    `rise_position` is measured against the line's own plateau: how far it reaches, whatever the cost.
    """
    line = measured(run, rescale)
    trained = measures.mean_loss(run.segments.get(("non_overlapping", 1.0), {}).values())
    row = measures.extrapolation(line, lengths)
    row |= measures.changes(row, row["loss_1x"], lengths, "loss_change")
    row |= measures.changes(row, trained, lengths, "loss_change_from_trained")
    return row | measures.usable_length(line, run) | measures.failure(line, run) | measures.rise(line)


def rescaled_arms(
    all_figures: Sequence[ArmFigures], lengths: Sequence[float]
) -> tuple[tuple[ArmFigures, Lines], ...]:
    """Return the arms with runs that were measured under other rotations, each with its lines."""
    known = list(NAMES)
    lines = [
        (item, rescale, label(rescale, item.arm.runs[0].config))
        for item in all_figures
        if (rotations := dict.fromkeys(name for run in item.arm.finished for name in run.rescalings))
        for rescale in (TRAINED, *rotations)
    ]
    lines.sort(key=lambda line: known.index(line[1]) if line[1] in known else len(known))
    looks = {text: line_number(i) for i, text in enumerate(dict.fromkeys(text for *_, text in lines))}
    by_arm = (
        (item, tuple(_under(*line, looks[line[2]], lengths) for line in lines if line[0] is item))
        for item in all_figures
    )
    return tuple(of_arm for of_arm in by_arm if of_arm[1])


def _under(item: ArmFigures, rescale: str, text: str, look: int, lengths: Sequence[float]) -> ArmFigures:
    """Return the arm under one rotation: its figures over its seeds, and its rows of rescaled.csv."""
    shared = ("study", "run", "arm", "pos", "attention", "seed", "context_length")
    rows = tuple(
        {key: row[key] for key in shared}
        | {"rescale": plain(rescale, 60), "line": text}
        | figures(run, rescale, lengths)
        for run, row in zip(item.arm.finished, item.rows, strict=True)
    )
    columns = [f"{family}_{measures.name(k)}" for family in FAMILIES for k in lengths]
    runs = tuple(measured(run, rescale) for run in item.arm.runs)
    arm = replace(item.arm, label=text, look=look, runs=runs)
    return ArmFigures(arm, estimates(rows, (*columns, "plateau")), rows)
