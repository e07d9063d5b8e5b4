"""Sentences on several budgets or sizes: the order at both ends, who changes places, and trends."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from poslab.analysis.ladder import Crossing, Ladder, Rung, Trend, crossings
from poslab.analysis.statistics import EXPLORATORY, FALSE_ALARMS, Difference, grouped
from poslab.config.text import counted, listing
from poslab.record.measures import short_unit
from poslab.report import cells
from poslab.report.formatting import interval, number, quantity
from poslab.report.verdict import NAMED, not_compared, sentence


def named(rungs: Ladder, rung: Rung) -> str:
    """Return a rung in words, with its size where there are several."""
    share = number(rung.share, 2)
    if len(rungs.sizes) == 1:
        return f"{share} tokens per parameter"
    return f"{quantity(rung.parameters)} parameters with {share} tokens each"


def trend_findings(rungs: Ladder, trends: Sequence[tuple[str, Trend]]) -> Iterator[str]:
    """Yield the trends of each figure, which the first screen does not have."""
    for figure in rungs.figures:
        if found := [trend for of, trend in trends if of == figure]:
            yield _trends(rungs, figure, found)


def findings(rungs: Ladder, figure: str) -> Iterator[str]:
    """Yield the order at both ends, and who change places."""
    seeds = rungs.seeds(figure) or [EXPLORATORY]
    caution = ""
    if seeds[0] < EXPLORATORY and figure == rungs.figures[0]:
        caution = f"{counted(cells.span(seeds), 'seed')}, so exploratory: "
    without = [arm for arm in rungs.contenders if all(arm not in rung.order(figure) for rung in rungs.rungs)]
    measured = {arm for rung in rungs.rungs for arm in rung.arms}
    lacking, unlike = "not defined or not measured there", f"scored in another way than {rungs.reference}"
    apart = not_compared((lacking if arm in measured else unlike, arm) for arm in without)
    yield sentence(
        f"{caution}{cells.figure_place(figure)}, the order of the means is {_order(rungs, figure)}{apart}"
    )
    crossed, looked_at = crossings(rungs, figure)
    if crossed:
        yield _crossed(rungs, figure, crossed)
    elif looked_at:
        yield "No two arms are shown to change places."


def _order(rungs: Ladder, figure: str) -> str:
    """Return the order at the least and the most compute, and at the most that all arms have.

    Neighbours that lie within noise are named beside it; of an order throughout, at every rung.
    """
    whole = rungs.whole.order(figure)
    if all(rung.order(figure) == [arm for arm in whole if arm in rung.arms] for rung in rungs.rungs):
        close = grouped((pair, rung) for rung in rungs.rungs for pair in _close(rung, figure))
        pairs = [
            f"{pair} (at {listing([named(rungs, rung) for rung in places], NAMED)})"
            for pair, places in close.items()
        ]
        noise = f"; neighbours within noise: {listing(pairs, NAMED)}" if pairs else ""
        return f"{', '.join(whole)} throughout{noise}"
    parts = []
    for rung in dict.fromkeys((rungs.rungs[0], rungs.whole, rungs.rungs[-1])):
        pairs = _close(rung, figure)
        noise = f" (neighbours within noise: {listing(pairs, NAMED)})" if pairs else ""
        parts.append(f"{', '.join(rung.order(figure))} at {named(rungs, rung)}{noise}")
    return "; ".join(parts)


def _close(rung: Rung, figure: str) -> list[str]:
    """Return which neighbours in the order of a rung lie within noise."""
    gaps = [(pair, rung.gap(*pair, figure)) for pair in pairwise(rung.order(figure))]
    return [" with ".join(pair) for pair, gap in gaps if gap and gap.half_width and not gap.decided]


def _crossed(rungs: Ladder, figure: str, crossed: Sequence[Crossing]) -> str:
    """Return a sentence on who change places, with both gaps."""
    parts = [
        f"{cross.arm} and {cross.against} between {named(rungs, cross.before)} and "
        f"{named(rungs, cross.after)} ({_gap(cross.gap_before)}, then {_gap(cross.gap_after)} "
        f"{short_unit(figure)})"
        for cross in crossed
    ]
    sure = sum(cross.p_holm < FALSE_ALARMS for cross in crossed)
    corrected = "all" if sure == len(crossed) else str(sure or "none")
    return f"Changing places: {listing(parts, NAMED)}; after Holm's correction {corrected} of these."


def _gap(gap: Difference) -> str:
    return interval(gap.mean, gap.half_width, 3, sign=True)


def _trends(rungs: Ladder, figure: str, trends: Sequence[Trend]) -> str:
    """Return a sentence on which gaps shrink or grow, and at which none is seen."""
    seen = [
        f"that of {found.arm} {found.reading} {_course(found, figure)}, between {quantity(found.flops_from)} "
        f"and {quantity(found.flops_to)} FLOP"
        for found in trends
        if found.seen
    ]
    words = {"one seed": "one seed tests no trend"}
    unseen = grouped(
        (words.get(found.reading, found.reading), found.arm) for found in trends if not found.seen
    )
    parts = [*seen, *(f"{reading} for {listing(arms, NAMED)}" for reading, arms in unseen.items())]
    return f"Gaps to {rungs.reference} {cells.figure_place(figure)}: {'; '.join(parts)}."


def _course(found: Trend, figure: str) -> str:
    """Return the way of a gap from its first to its last, with its slope where it is a line."""
    ends = f"from {_gap(found.first)} to {_gap(found.last)}"
    if not found.along_a_line:
        return f"{ends} {short_unit(figure)}, but not along a line over the logarithm of compute"
    slope = interval(abs(found.per_tenfold.mean), found.per_tenfold.half_width, 3)
    fixed = " at the same tokens per parameter" if found.per_tenfold_share else ""
    return f"by {slope} {short_unit(figure)} per tenfold compute{fixed}, {ends}"
