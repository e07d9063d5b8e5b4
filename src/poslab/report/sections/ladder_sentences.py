"""Sentences on several budgets or sizes: the order at both ends, changes of places, and trends."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from poslab.analysis.ladder import Crossing, Ladder, Rung, Trend, crossings
from poslab.analysis.statistics import EXPLORATORY, FALSE_ALARMS, Difference, grouped
from poslab.config.text import counted, listing
from poslab.record.measures import short_unit
from poslab.report import cells
from poslab.report.formatting import interval, number, quantity
from poslab.report.verdict import NAMED, not_compared, phrases, sentence

TRENDS = {  # the words for each reading of a trend
    "shrinks": "it shrinks for",
    "grows": "it grows for",
    "turns": "it changes sign for",
    "no trend seen": "no trend is seen for",
    "one seed": "with one seed, no trend is tested for",
}


def named(rungs: Ladder, rung: Rung) -> str:
    """Return a rung in words, with its size if there are several sizes."""
    share = number(rung.share, 2)
    if len(rungs.sizes) == 1:
        return f"{share} tokens per parameter"
    return f"{quantity(rung.parameters)} parameters with {share} tokens each"


def trend_findings(rungs: Ladder, trends: Sequence[tuple[str, Trend]]) -> Iterator[str]:
    """Yield the trends of each figure, which are not on the first screen."""
    for figure in rungs.figures:
        if fitted := [trend for of, trend in trends if of == figure]:
            yield _trends(rungs, figure, fitted)


def findings(rungs: Ladder) -> Iterator[str]:
    """Yield the order at both ends and the changes of places, by figure; that none is shown comes once."""
    found = {figure: crossings(rungs, figure) for figure in rungs.figures}
    same = [figure for figure, (crossed, pairs) in found.items() if pairs and not crossed]
    where = f", here or {cells.figure_place(same[1])}" if len(same) > 1 else ""
    for figure, (crossed, _) in found.items():
        none = f"No two arms are shown to change places{where}." if figure in same[:1] else ""
        changes = _crossed(rungs, figure, crossed) if crossed else none
        yield f"{_ordered(rungs, figure)} {changes}".rstrip()


def _ordered(rungs: Ladder, figure: str) -> str:
    """Return a sentence on the order at both ends, with the arms that are not in it."""
    seeds = rungs.seeds(figure) or [EXPLORATORY]
    caution = ""
    if seeds[0] < EXPLORATORY and figure == rungs.figures[0]:
        caution = f"{counted(cells.span(seeds), 'seed')}, so exploratory: "
    without = [arm for arm in rungs.contenders if all(arm not in rung.order(figure) for rung in rungs.rungs)]
    measured = {arm for rung in rungs.rungs for arm in rung.arms}
    lacking, unlike = "not defined or not measured there", f"scored in another way than {rungs.reference}"
    apart = not_compared((lacking if arm in measured else unlike, arm) for arm in without)
    order = f"{cells.figure_place(figure)}, the order of the means is {_order(rungs, figure)}"
    return sentence(f"{caution}{order}{apart}")


def _order(rungs: Ladder, figure: str) -> str:
    """Return the order at the lowest and highest compute, and at the highest that all arms have.

    Neighbours within noise are named, for each of these rungs or, if the order never changes, for all.
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
    """Return the pairs of neighbours in the order of a rung that are within noise."""
    gaps = [(pair, rung.gap(*pair, figure)) for pair in pairwise(rung.order(figure))]
    return [" with ".join(pair) for pair, gap in gaps if gap and gap.half_width and not gap.decided]


def _crossed(rungs: Ladder, figure: str, crossed: Sequence[Crossing]) -> str:
    """Return a sentence on the arms that change places, with both gaps."""
    parts = [
        f"{cross.arm} and {cross.against} between {named(rungs, cross.before)} and "
        f"{named(rungs, cross.after)} ({_gap(cross.gap_before)}, then {_gap(cross.gap_after)} "
        f"{short_unit(figure)})"
        for cross in crossed
    ]
    sure = sum(cross.p_holm < FALSE_ALARMS for cross in crossed)
    corrected = "all" if sure == len(crossed) else str(sure or "none")
    return f"Changing places: {listing(parts, NAMED)}; after Holm's correction, {corrected} of these."


def _gap(gap: Difference) -> str:
    return interval(gap.mean, gap.half_width, 3, sign=True)


def _trends(rungs: Ladder, figure: str, trends: Sequence[Trend]) -> str:
    """Return which gaps shrink or grow, and for which arms no trend is seen; shared facts come only once."""
    ends = [(quantity(found.flops_from), quantity(found.flops_to)) for found in trends]
    spans = [f", between {low} and {high} FLOP" for low, high in ends]
    shared = len(set(spans)) == 1 and any(found.seen for found in trends)
    labels = [
        f"{cells.lone_arm(found.arm)} ({_course(found, figure)}{'' if shared else span})"
        if found.seen
        else found.arm
        for found, span in zip(trends, spans, strict=True)
    ]
    readings = (TRENDS[found.reading] for found in trends)
    parts = "; ".join(phrases(TRENDS.values(), zip(readings, labels, strict=True), len(trends)))
    place = f"{cells.figure_place(figure)}{spans[0] if shared else ''}"
    bent = [found.arm for found in trends if found.seen and not found.along_a_line]
    no_slope = "No slope, as the gaps are on no line in the logarithm of compute"
    notes = f" {no_slope}: {listing(bent, len(bent))}." if bent else ""
    held = [found.arm for found in trends if found.along_a_line and found.per_tenfold_share]
    notes += f" Slopes at the same tokens per parameter: {listing(held, len(held))}." if held else ""
    return f"Gap to {rungs.reference} {place}: {parts}.{notes}"


def _course(found: Trend, figure: str) -> str:
    """Return a gap from its first to its last value, with its slope if it follows a line."""
    slope = interval(abs(found.per_tenfold.mean), found.per_tenfold.half_width, 3)
    per_tenfold = f", by {slope} {short_unit(figure)} per tenfold compute" if found.along_a_line else ""
    return f"from {_gap(found.first)} to {_gap(found.last)} {short_unit(figure)}{per_tenfold}"
