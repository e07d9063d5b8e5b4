"""What a study of several budgets or sizes says: the order at both ends, who changes places, and trends."""

from collections.abc import Iterator, Sequence

from poslab.analysis.ladder import Crossing, Ladder, Rung, Trend, crossings
from poslab.analysis.statistics import EXPLORATORY, FALSE_ALARMS, Difference
from poslab.config.text import counted, listing
from poslab.record.measures import short_unit
from poslab.report import cells
from poslab.report.formatting import interval, number, quantity
from poslab.report.verdict import NAMED, sentence


def named(rungs: Ladder, rung: Rung) -> str:
    """Return a rung in words, with its size where there are several."""
    share = f"{number(rung.share, 2)} tokens a parameter"
    return share if len(rungs.sizes) == 1 else f"{quantity(rung.parameters)}, {share}"


def trend_findings(rungs: Ladder, trends: Sequence[tuple[str, Trend]]) -> Iterator[str]:
    """Yield what the first screen does not say: the trends of each figure."""
    for figure in rungs.figures:
        if found := [trend for of, trend in trends if of == figure]:
            yield _trends(rungs, figure, found)


def findings(rungs: Ladder, figure: str) -> Iterator[str]:
    """Yield the order at both ends, and who change places."""
    gaps = [rung.gap(arm, rungs.reference, figure) for rung in rungs.rungs for arm in rungs.others]
    seeds = min((gap.n for gap in gaps if gap is not None), default=EXPLORATORY)
    few = (
        f"{counted(seeds, 'seed')}, so exploratory: "
        if seeds < EXPLORATORY and figure == rungs.figures[0]
        else ""
    )
    without = [arm for arm in rungs.contenders if all(arm not in rung.order(figure) for rung in rungs.rungs)]
    apart = f"; not defined or not measured there: {listing(without, NAMED)}" if without else ""
    yield sentence(
        f"{few}{cells.figure_place(figure)}, the order of the means is {_order(rungs, figure)}{apart}"
    )
    crossed, looked_at = crossings(rungs, figure)
    if crossed:
        yield _crossed(rungs, figure, crossed)
    elif looked_at:
        yield "No two arms are shown to change places."


def _order(rungs: Ladder, figure: str) -> str:
    """Return the order at the least and the most compute, and at the most that all arms have."""
    whole = rungs.whole.order(figure)
    if all(rung.order(figure) == [arm for arm in whole if arm in rung.arms] for rung in rungs.rungs):
        return f"{', '.join(whole)} throughout"
    ends = dict.fromkeys((rungs.rungs[0], rungs.whole, rungs.rungs[-1]))
    return "; ".join(f"{', '.join(rung.order(figure))} at {named(rungs, rung)}" for rung in ends)


def _crossed(rungs: Ladder, figure: str, crossed: Sequence[Crossing]) -> str:
    """Return a sentence on who change places, with both gaps."""
    parts = [
        f"{cross.arm} and {cross.against} between {_between(rungs, cross)} ({_gap(cross.gap_before)}, then "
        f"{_gap(cross.gap_after)} {short_unit(figure)})"
        for cross in crossed
    ]
    sure = sum(cross.p_holm < FALSE_ALARMS for cross in crossed)
    corrected = "all" if sure == len(crossed) else str(sure or "none")
    return f"Changing places: {listing(parts, NAMED)}; after Holm's correction {corrected} of these."


def _between(rungs: Ladder, cross: Crossing) -> str:
    before = number(cross.before.share, 2) if len(rungs.sizes) == 1 else named(rungs, cross.before)
    return f"{before} and {named(rungs, cross.after)}"


def _gap(gap: Difference) -> str:
    return interval(gap.mean, gap.half_width, 3, sign=True)


def _trends(rungs: Ladder, figure: str, trends: Sequence[Trend]) -> str:
    """Return a sentence on which gaps shrink or grow, and at which none is seen."""
    ends = [f"from {quantity(found.low)} to {quantity(found.high)} FLOP" for found in trends]
    alike = len(set(ends)) == 1
    fixed = " at the same tokens a parameter"
    seen = [
        f"that of {found.arm} {found.reading} by "
        f"{interval(abs(found.per_tenfold.mean), found.per_tenfold.half_width, 3)} {short_unit(figure)} per "
        f"tenfold compute{fixed if found.per_tenfold_share else ''}, from {_gap(found.first)} to "
        f"{_gap(found.last)}{'' if alike else f' ({compute})'}"
        for found, compute in zip(trends, ends, strict=True)
        if found.seen
    ]
    unseen = [found.arm for found in trends if not found.seen]
    none = f"no trend is seen for {listing(unseen, NAMED)}" if unseen else ""
    parts = "; ".join(filter(None, (", ".join(seen), none)))
    over = f", {ends[0]}" if alike else ""
    return f"Gaps to {rungs.reference} {cells.figure_place(figure)}{over}: {parts}."
