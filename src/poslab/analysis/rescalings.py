"""An arm's lines: its trained model as it is, and the same model evaluated under other rotations.

Position interpolation (Chen et al. 2023), NTK-aware and dynamic NTK scaling and YaRN (Peng et al. 2023) and
DroPE take a trained RoPE further without training it again. What they reach and what they cost is measured
against the model as trained: its losses at L, not those of the rescaled model, which may be bad everywhere.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from poslab.analysis.estimates import BY_LENGTH, ArmFigures, estimates
from poslab.config.text import plain
from poslab.record import measures
from poslab.record.losses import TRAINED, RescaledMeasurement
from poslab.record.measures import Value
from poslab.record.reader import Run

# What a reader calls them, in the order that they are shown in.
NAMES = {
    TRAINED: "as trained",
    "pi": "interpolation{factor}",
    "ntk": "NTK{factor}",
    "dynamic": "dynamic NTK",
    "yarn": "YaRN{factor}",
    "drop": "RoPE dropped{recalibration}",
}
FAMILIES = (*BY_LENGTH, "loss_change", "loss_change_from_trained")


@dataclass(frozen=True)
class Line:
    """An arm's figures under one rotation. The same label has the same place, and so look, in every arm."""

    place: int  # among all lines of the study; as trained has 0
    rescale: str  # as the record says it
    label: str
    item: ArmFigures


@dataclass(frozen=True)
class RescaledArm:
    """An arm with a line a rotation."""

    lines: tuple[Line, ...]  # as trained first

    @property
    def item(self) -> ArmFigures:
        """The arm as it was trained."""
        return self.lines[0].item


def label(rescale: str, config: Mapping[str, Any]) -> str:
    """A rescaling in words: "YaRN s=8", "RoPE dropped, 50 steps of recalibration"."""
    if rescale not in NAMES:
        return plain(rescale, 60) or "unnamed"
    evaluation = config.get("evaluate")
    evaluation = evaluation if isinstance(evaluation, Mapping) else {}
    factor, steps = evaluation.get("rescale_factor"), evaluation.get("recalibration_steps")
    if factor == "auto":
        factor = evaluation.get("longest")  # as far as the longest length
    return NAMES[rescale].format(
        factor=f" s={factor:g}" if _is_number(factor) else "",
        recalibration=f", {steps} {'step' if steps == 1 else 'steps'} of recalibration"
        if _is_number(steps) and steps
        else "",
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def measured(run: Run, rescale: str) -> Run:
    """The run as if it had been measured under that rotation alone; with no losses where it was not."""
    if rescale == TRAINED:
        return run
    losses = run.rescaled.get(rescale, RescaledMeasurement())
    return replace(run, segments=losses.segments, positions=losses.positions)


def figures(run: Run, rescale: str, lengths: Sequence[float]) -> dict[str, Value]:
    """The figures of a run under one rotation; usable length and failure are measured against it as trained.

    `loss_change_from_trained` is over the loss at L as trained: at L itself, the price of the rescaling.
    `rise_position` is measured against the line's own plateau: how far it reaches, whatever it costs.
    """
    line = measured(run, rescale)
    trained = measures.mean_loss(run.segments.get(("non_overlapping", 1.0), {}).values())
    row = measures.extrapolation(line, lengths)
    row |= measures.changes(row, row["loss_1x"], lengths, "loss_change")
    row |= measures.changes(row, trained, lengths, "loss_change_from_trained")
    return row | measures.usable_length(line, run) | measures.failure(line, run) | measures.rise(line)


def rescaled_arms(everything: Sequence[ArmFigures], lengths: Sequence[float]) -> tuple[RescaledArm, ...]:
    """The arms with a run that was measured under other rotations, each with a line a rotation."""
    known = list(NAMES)
    lines = [
        (item, rescale, label(rescale, item.arm.runs[0].config))
        for item in everything
        for rescale in _rescalings(item)
    ]
    lines.sort(key=lambda line: known.index(line[1]) if line[1] in known else len(known))
    places = {shown: place for place, shown in enumerate(dict.fromkeys(shown for _, _, shown in lines))}
    by_arm: dict[str, list[Line]] = {item.arm.label: [] for item in everything}
    for item, rescale, shown in lines:
        line = Line(places[shown], rescale, shown, _under(rescale, shown, item, lengths))
        by_arm[item.arm.label].append(line)
    return tuple(RescaledArm(tuple(mine)) for mine in by_arm.values() if mine)


def _rescalings(item: ArmFigures) -> tuple[str, ...]:
    """As trained and every rotation beside it; nothing where there is none beside it."""
    others = dict.fromkeys(name for run in item.arm.finished for name in run.rescalings)
    return (TRAINED, *others) if others else ()


def _under(rescale: str, shown: str, item: ArmFigures, lengths: Sequence[float]) -> ArmFigures:
    """The arm's figures over its seeds, a row a run as in rescaled.csv."""
    shared = ("study", "run", "arm", "pos", "attention", "seed", "context_length")
    rows = tuple(
        {key: row[key] for key in shared}
        | {"rescale": plain(rescale, 60), "line": shown}
        | figures(run, rescale, lengths)
        for run, row in zip(item.arm.finished, item.rows, strict=True)
    )
    columns = [f"{family}_{measures.name(k)}" for family in FAMILIES for k in lengths]
    return ArmFigures(item.arm, estimates(rows, (*columns, "plateau")), rows)
