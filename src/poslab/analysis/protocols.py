"""The figure that a study tests, and its counterpart in the other protocol at the same length.

Non-overlapping windows of 8 L average over contexts of up to 8 L, an eighth of them within L. In sliding
windows every target has nearly the whole window before it (Press et al. 2022, appendix B). The two may order
arms differently, so one is tested and the other is shown beside it.
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

# The loss families, each with its counterpart in the other protocol; the first is tested by default.
OTHER = {"sliding": "loss", "loss": "sliding"}
OTHER |= {IN_BITS[nats]: IN_BITS[beside] for nats, beside in OTHER.items()}
LONGEST_TESTED = 8.0  # multiples of L, unless a study names another figure


def loss_at_length(reference: ArmFigures, tested: str | None) -> str:
    """Return the figure for the loss at L that is claimed beside a tested figure past L, in the same unit.

    It is the mean over whole windows, as in papers, if the reference has that figure. The sliding loss at L
    scores only the last L/8 positions of its windows, so it covers only a fraction of the targets.
    """
    units = IN_BITS if is_in_bits(tested) else {nats: nats for nats in IN_BITS}
    whole, end = f"{units['loss']}_{name(1)}", f"{units['sliding']}_{name(1)}"
    return whole if whole in reference.figures else end


def counterpart(figure: str) -> str:
    """Return the loss at the same length in the other protocol: sliding_8x -> loss_8x."""
    return f"{OTHER[family(figure)]}_{name(multiple(figure))}"


def choose_primary(
    all_figures: Sequence[ArmFigures],
    reference: ArmFigures,
    multiples: Sequence[float],
    planned: str | None,
    requested: str | None,
) -> str | None:
    """Return the figure to test: the `requested` one, else `planned` if an arm has it, else the default.

    The default is the reference's loss in sliding windows of 8 L, or of the longest length from L to 8 L that
    it has. If it was measured in no sliding windows, as under an objective without a causal mask, the default
    is the loss in non-overlapping windows. The figure is None if the reference has no such loss. Raise
    ReportError if no arm has the `requested` figure.
    """
    figures = [f"{protocol}_{name(k)}" for protocol in OTHER for k in multiples]
    available = [figure for figure in figures if any(figure in item.figures for item in all_figures)]
    choice = planned if requested is None else requested
    if choice in available:
        return choice
    if requested is not None:
        listed = ", ".join(available) or "none"
        raise ReportError(f"primary={plain(requested, 60)} is a loss that no arm has; there are {listed}")
    usual = [k for k in reversed(multiples) if 1 <= k <= LONGEST_TESTED]
    slides = any(f"sliding_{name(k)}" in reference.figures for k in multiples)
    defaults = (f"{'sliding' if slides else 'loss'}_{name(k)}" for k in usual)
    return next((figure for figure in defaults if figure in reference.figures), None)


def both_protocols(all_figures: Sequence[ArmFigures], pairs: Sequence[Comparison]) -> tuple[Comparison, ...]:
    """Return the pairs of arms on the tested figure, with the same arms' differences on its counterpart."""
    by_label = {item.arm.label: item for item in all_figures}
    tests, gaps = {}, []
    for i, pair in enumerate(pairs):
        ends, figure = (by_label[pair.arm.label], by_label[pair.against.label]), counterpart(pair.figure)
        gaps.append(difference(*ends, figure))
        ordered = gaps[-1], difference(*ends, pair.figure, less=figure)
        p_values = [gap.p for gap in ordered if gap is not None and gap.p is not None]
        if len(p_values) == len(ordered):
            tests[i] = max(p_values)  # tests both at once: an intersection-union test (Berger 1982)
    adjusted = holm(tests)
    return tuple(
        replace(pair, beside=gap, change_p_holm=adjusted.get(i))
        for i, (pair, gap) in enumerate(zip(pairs, gaps, strict=True))
    )
