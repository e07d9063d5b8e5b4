"""Interactions: whether the difference of two schemes depends on the other settings that a study varies."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from poslab.analysis.arms import RATES
from poslab.analysis.comparisons import alike
from poslab.analysis.estimates import ArmFigures
from poslab.analysis.spread import contrast, difference
from poslab.analysis.statistics import Difference
from poslab.record.measures import is_in_bits


@dataclass(frozen=True)
class Interaction:
    """An arm that differs from the reference both in the scheme and in other settings."""

    arm: ArmFigures
    against: ArmFigures  # the reference's scheme with the other settings of `arm`
    with_own: Difference  # `arm` less `against`
    with_reference: Difference  # the scheme of `arm` less the reference, with the reference's other settings
    change: Difference  # the first less the second


def interactions(
    all_figures: Sequence[ArmFigures], reference: ArmFigures, primary: str | None
) -> tuple[Interaction, ...]:
    """Return how differences between schemes on the tested loss change with the other settings.

    Only arms with losses that compare with the reference's count, if both schemes were trained with both
    settings. Empty if some arms differ only in their rates: the difference would also be one of rates.
    """
    if primary is None:
        return ()
    compared = alike(all_figures, reference.arm, is_in_bits(primary))
    by_parts = {_parts(item): item for item in compared}
    if len(by_parts) < len(compared):  # arms that differ only in their rates
        return ()
    base_scheme, base_rest = _parts(reference)
    listed = []
    for (scheme, rest), item in by_parts.items():
        against, plain = by_parts.get((base_scheme, rest)), by_parts.get((scheme, base_rest))
        if scheme == base_scheme or rest == base_rest or against is None or plain is None:
            continue
        with_own, with_reference = difference(item, against, primary), difference(plain, reference, primary)
        signs = (item, 1), (against, -1), (plain, -1), (reference, 1)
        change = contrast([(arm, primary, sign) for arm, sign in signs])
        if with_own is not None and with_reference is not None and change is not None:
            listed.append(Interaction(item, against, with_own, with_reference, change))
    return tuple(listed)


def _parts(item: ArmFigures) -> tuple[str, str]:
    """Return an arm's scheme settings, and its other settings that differ in the study, except rates."""

    def text(settings: Mapping[str, object]) -> str:
        return json.dumps(settings, sort_keys=True, default=str)

    differing = item.arm.differing.items()
    scheme = {key: value for key, value in differing if key.startswith("pos.")}
    rest = {key: value for key, value in differing if not key.startswith("pos.") and key not in RATES}
    return text(scheme), text(rest)
