"""The figure that a study tests, and the same arms in the other protocol at the same length.

Non-overlapping windows of 8 L average over contexts of 1 to 8 L, an eighth of them within L; in sliding
windows every target has nearly the whole window before it (Press et al. 2022, appendix B). The two may order
arms differently, so one is tested and the other stands beside it.
"""

from collections.abc import Sequence
from dataclasses import replace

from poslab.analysis.comparisons import Comparison
from poslab.analysis.estimates import ArmFigures
from poslab.analysis.spread import difference
from poslab.analysis.statistics import holm
from poslab.config.text import plain
from poslab.record.measures import IN_BITS, family, is_in_bits, multiple, name
from poslab.record.reader import ReportError

# The families of losses and the other protocol's; what is tested by default is first.
OTHER = {"sliding": "loss", "loss": "sliding"}
OTHER |= {IN_BITS[nats]: IN_BITS[beside] for nats, beside in OTHER.items()}
LONGEST_TESTED = 8.0  # of L, unless a study names another figure


def loss_at_length(reference: ArmFigures, tested: str | None) -> str:
    """Return the figure that is claimed as the loss at L beside a tested one past L, in the same unit.

    The mean over whole windows, as papers have it, where the reference has it: the sliding loss at L scores
    only the last L/8 positions of its windows, so it rests on a fraction of the targets.
    """
    units = IN_BITS if is_in_bits(tested) else {nats: nats for nats in IN_BITS}
    whole, end = f"{units['loss']}_{name(1)}", f"{units['sliding']}_{name(1)}"
    return whole if whole in reference.figures else end


def counterpart(figure: str) -> str:
    """Return the loss at the same length in the other protocol: sliding_8x -> loss_8x"""
    return f"{OTHER[family(figure)]}_{name(multiple(figure))}"


def choose_primary(
    all_figures: Sequence[ArmFigures],
    reference: ArmFigures,
    multiples: Sequence[float],
    planned: str | None,
    requested: str | None,
) -> tuple[str | None, str | None]:
    """Return the figure to test, and a warning where no arm has the one that the study names (`planned`).

    By default it is the reference's loss in sliding windows of 8 L, or of the longest length below, down to
    L, and in non-overlapping windows where it was measured in no sliding ones, as under an objective without
    a causal mask; None where it has no such loss. Raises ReportError where `requested` is no figure of any
    arm.
    """
    figures = [f"{protocol}_{name(k)}" for protocol in OTHER for k in multiples]
    available = [figure for figure in figures if any(figure in item.figures for item in all_figures)]
    asked = planned if requested is None else requested
    if asked in available:
        return asked, None
    if requested is not None:
        listed = ", ".join(available) or "none"
        raise ReportError(f"primary={plain(requested, 60)} is a loss of no arm; there are {listed}")
    usual = [k for k in reversed(multiples) if 1 <= k <= LONGEST_TESTED]
    slides = any(f"sliding_{name(k)}" in reference.figures for k in multiples)
    defaults = (f"{'sliding' if slides else 'loss'}_{name(k)}" for k in usual)
    default = next((figure for figure in defaults if figure in reference.figures), None)
    if planned is None:
        return default, None
    instead = "nothing is tested" if default is None else f"{default} is tested instead"
    return default, f"The figure to be tested, {plain(planned, 60)}, is a loss of no arm; {instead}."


def both_protocols(all_figures: Sequence[ArmFigures], pairs: Sequence[Comparison]) -> tuple[Comparison, ...]:
    """Return the pairs of arms in the tested figure with the same arms in its counterpart beside them."""
    by_label = {item.arm.label: item for item in all_figures}
    tests, gaps = {}, []
    for i, pair in enumerate(pairs):
        ends, figure = (by_label[pair.arm.label], by_label[pair.against.label]), counterpart(pair.figure)
        gaps.append(difference(*ends, figure))
        ordered = gaps[-1], difference(*ends, pair.figure, less=figure)
        p_values = [found.p for found in ordered if found is not None and found.p is not None]
        if len(p_values) == len(ordered):
            tests[i] = max(p_values)  # that both are so: an intersection-union test (Berger 1982)
    adjusted = holm(tests)
    return tuple(
        replace(pair, beside=gap, change_p_holm=adjusted.get(i))
        for i, (pair, gap) in enumerate(zip(pairs, gaps, strict=True))
    )
