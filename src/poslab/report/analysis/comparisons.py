"""Arms against the reference, over the seeds that both have."""

from collections.abc import Sequence
from dataclasses import dataclass

from poslab.record.measures import name
from poslab.record.reader import Run
from poslab.report.analysis.arms import Arm
from poslab.report.analysis.estimates import ArmFigures
from poslab.report.analysis.labels import RESCALING
from poslab.report.analysis.statistics import EXPLORATORY, FALSE_ALARMS, Difference, holm, paired

COMPARED = ("loss", "sliding", "context_gain")
PRIMARY = 8.0  # the longest multiple of L whose loss is tested


@dataclass(frozen=True)
class Comparison:
    """An arm against the reference on one figure; `p_holm` is there for the primary figure alone."""

    arm: Arm
    figure: str
    difference: Difference
    p_holm: float | None
    reading: str


def comparable(run: Run, reference: Arm) -> bool:
    """Whether nats a token mean the same: one text, cut into the same tokens, and the same ones scored."""

    def scored(run: Run) -> tuple[object, ...]:
        asked = run.config.get("evaluate")
        if isinstance(asked, dict):
            asked = {key: value for key, value in asked.items() if key not in RESCALING}
        return run.data_fingerprint, run.vocabulary, run.context_length, asked

    return all(scored(run) == scored(other) for other in reference.finished)


def primary_figure(reference: ArmFigures, multiples: tuple[float, ...]) -> str | None:
    """The figure that is tested: the reference's loss at 8 L, or at the longest below that was scored."""
    scored = [f"loss_{name(k)}" for k in multiples if 1 <= k <= PRIMARY]
    return next((figure for figure in reversed(scored) if figure in reference.figures), None)


def compare(
    everything: Sequence[ArmFigures],
    reference: ArmFigures,
    primary: str | None,
    multiples: tuple[float, ...],
) -> tuple[Comparison, ...]:
    """Every arm's differences from the reference, where their losses mean the same."""
    columns = [f"{family}_{name(k)}" for family in COMPARED for k in multiples if k >= 1]
    found: list[tuple[Arm, str, Difference]] = []
    for item in everything:
        same_data = all(comparable(run, reference.arm) for run in item.arm.finished)
        for column in columns if item is not reference and same_data else ():
            difference = paired(item.by_seed(column), reference.by_seed(column))
            if difference is not None:
                found.append((item.arm, column, difference))
    tests = {arm.label: d.p for arm, column, d in found if column == primary and d.p is not None}
    adjusted = holm(tests)
    comparisons = []
    for arm, column, difference in found:
        p_holm = adjusted.get(arm.label) if column == primary else None
        comparisons.append(
            Comparison(arm, column, difference, p_holm, _reading(difference, p_holm, column == primary))
        )
    return tuple(comparisons)


def _reading(difference: Difference, p_holm: float | None, primary: bool) -> str:
    """What may be said: only the primary figure is tested, and only with an interval."""
    if difference.half_width is None:
        return "one seed"
    if difference.p is None:
        return "no spread"
    if abs(difference.mean) <= difference.half_width:
        return "within noise"
    if not primary:
        return "descriptive"
    if p_holm is None or p_holm >= FALSE_ALARMS:
        return "within noise after Holm"
    few = " (exploratory)" if difference.n < EXPLORATORY else ""
    return ("lower" if difference.mean < 0 else "higher") + few
