"""A study in a few sentences that claim no more than its intervals hold, from the cells of its CSV files."""

import math
from collections.abc import Callable, Iterable, Sequence

from poslab.analysis.claims import TARGET, TIME, Group, gain, holds, longest_gain
from poslab.analysis.comparisons import Comparison
from poslab.analysis.estimates import FIXED, RELATIVE, ArmFigures, target_columns, usable_columns
from poslab.analysis.protocols import BothProtocols, at_length, counterpart
from poslab.analysis.results import Results
from poslab.analysis.statistics import EXPLORATORY, Estimate
from poslab.config.text import listing
from poslab.record.measures import family, name
from poslab.report import cells
from poslab.report.formatting import interval, multiple, number, percent, signed

NAMED = 3  # arms in one list; the tables have them all


def sentences(results: Results) -> tuple[str, ...]:
    """All that is claimed, sentence by sentence: past the training length, on the way, how sure it is."""
    return (*extrapolation(results), *convergence(results), *belief(results))


def extrapolation(results: Results) -> tuple[str, ...]:
    """What is claimed of the tested figure, of what a longer context is worth, and of usable lengths."""
    return _sentences(winner(results), _other_protocol(results), _context(results))


def convergence(results: Results) -> tuple[str, ...]:
    """Who gets to the reference's loss at 75 % of its budget and how fast, and the loss at L."""
    at_length = results.primary not in (None, _loss_at_length(results))
    return _sentences(_joined(_target(results, _timed), _at_length(results) if at_length else ""))


def belief(results: Results) -> tuple[str, ...]:
    """What of all that is a test, and what is missing."""
    missing = _phrases(("no finished run of", [item.arm.label for item in results.arms if not item.rows]))
    n = sum(run.status == "diverged" for run in results.compared)
    diverged = f"{n} of {len(results.compared)} runs diverged and count in no loss" if n else ""
    return _sentences(_joined(_family(results) if results.claims else "", *missing, diverged))


def _joined(*clauses: str) -> str:
    return "; ".join(filter(None, clauses))


def _sentences(*clauses: str) -> tuple[str, ...]:
    return tuple(f"{text[0].upper()}{text[1:]}." for text in clauses if text)


def winner(results: Results) -> str:
    """Who is separated from whom on the primary figure, and by how much from the reference."""
    reference, primary = results.reference, results.primary
    label = reference.arm.label
    if primary is None:
        return f"Nothing is compared: the reference, {label}, has no sliding loss at L"
    paired = {arm.label for pair in results.pairs for arm in (pair.arm, pair.other)}
    compared = [item for item in results.arms if item is reference or item.arm.label in paired]
    if len(compared) == 1:
        other = "no other arm has a comparable loss on the same seeds"
        why = "it is the only arm" if len(results.arms) == 1 else other
        return f"Nothing is compared with {label}, as {why}: {_described(reference, primary)}"
    where = cells.figure_place(primary)
    if not results.ranks:
        why = "In one run each" if results.seeds < 2 else "Without two seeds that arms share"
        between = _between((item, one) for item in compared if (one := item.figures.get(primary)) is not None)
        if f"({label})" not in between and primary in reference.figures:
            between += f", {number(reference.mean(primary))} for {label}, the reference"
        return f"{why}, so no winner is claimed: the loss {where} lies {between}"
    seeds = sorted(pair.difference.n for pair in results.pairs if pair.difference.n > 1)
    few = " (exploratory)" if seeds[0] < EXPLORATORY else ""
    return f"With {cells.span(seeds)} seeds{few}, {where} {_first(results)}; {_against(results)}"


def _described(item: ArmFigures, primary: str) -> str:
    """The loss of an arm that is compared with no other, at L and at the tested length."""
    first, (words, _, length) = item.mean(at_length(primary)), cells.figure_words(primary).partition(" at ")
    if primary == at_length(primary):
        return f"its {words} at L is {number(first)}"
    change, last = percent(item.mean(primary.replace("_", "_change_"))), number(item.mean(primary))
    return f"its {words} goes from {number(first)} at L to {last} at {length} ({change})"


def _first(results: Results) -> str:
    """Who may be first, by the ranks."""
    n, first = len(results.ranks), results.leading
    if not first:  # over different seeds each may be above another
        return f"no arm of {n} ranks first"
    if len(first) == n:
        return "the two arms are not separated" if n == 2 else f"no two of {n} arms are separated"
    if results.ranks[first[0]].worst == 1:
        rest = "the other" if n == 2 else "every other"
        return f"{first[0]} alone ranks first of {n} arms, separated from {rest}"
    if len(first) == 1:
        return f"no arm is separated below {first[0]}, which is not separated from every other"
    return f"no test tells which of {listing(first, NAMED)} is first of {n} arms"


def _against(results: Results) -> str:
    """The differences from the reference on the primary figure, corrected over all that is claimed."""
    tested = results.tested
    lower = sorted((i for i in tested if i.reading.startswith("lower")), key=lambda i: i.difference.mean)
    higher = sorted((i for i in tested if i.reading.startswith("higher")), key=lambda i: -i.difference.mean)
    parts = _phrases(
        ("lower for", _effects(lower)),
        # Numbers for the worse ones only where there is nothing better.
        ("higher for", [item.arm.label for item in higher] if lower else _effects(higher)),
        ("within noise for", [i.arm.label for i in tested if i.reading.startswith("within noise")]),
        ("not tested for", [i.arm.label for i in tested if i.reading in ("one seed", "no spread")]),
    )
    label = results.reference.arm.label
    if results.primary not in results.reference.figures:
        return f"{label}, the reference, has no loss there, so nothing is tested against it"
    if not parts:
        return f"no arm shares a seed with {label}, the reference"
    return f"against {label}, the reference, the loss is {', '.join(parts)}"


def _phrases(*groups: tuple[str, list[str]]) -> list[str]:
    """ "lower for a and b": the words of each group that has any labels, with these."""
    return [f"{words} {listing(labels, NAMED)}" for words, labels in groups if labels]


def _effects(comparisons: Sequence[Comparison]) -> list[str]:
    shown = []
    for item in comparisons:
        size = interval(item.difference.mean, item.difference.half_width, 3, sign=True)
        deviations = item.difference.deviations
        unit = "" if deviations is None else f", {number(deviations, 2)} seed SD"
        shown.append(f"{item.arm.label} ({size} nats{unit})")
    return shown


def _other_protocol(results: Results) -> str:
    """Which arms change places between the two protocols at the tested length; nothing where none does."""
    left = [both for both in results.both_protocols if both.changes_places]
    if not left or results.primary is None:
        return ""
    clauses: list[str] = []
    tested, other = (cells.WINDOWS[family(one)] for one in (results.primary, counterpart(results.primary)))
    while left and len(clauses) < NAMED:
        # The arm that changes places with the most others comes first.
        ends = [(label, side, both.separated) for both in left for side, label in enumerate(_ordered(both))]
        label, side, separated = max(dict.fromkeys(ends), key=ends.count)
        mine = [one for one in left if one.separated == separated and _ordered(one)[side] == label]
        left = [one for one in left if one not in mine]
        others = [_ordered(one)[1 - side] for one in mine]
        # Without their number: it would be a figure of no table.
        named = listing(others if len(others) <= NAMED else [*others[:NAMED], "others"])
        mean, back = ("lower", "higher")[side], ("higher", "lower")[side]
        sure = "" if separated else " (not separated)"
        clauses.append(
            f"{label} has a {mean} mean than {named} in {tested}{sure} and a {back} one in {other}"
        )
    rest = ["more pairs change places, in pairs.csv"] if left else []
    length = cells.figure_words(results.primary).partition(" at ")[2]
    return f"the two protocols order arms differently at {length}: {'; '.join(clauses + rest)}"


def _ordered(both: BothProtocols) -> tuple[str, str]:
    """The arm with the lower mean in the tested figure, and the other one."""
    labels = both.pair.arm.label, both.pair.other.label
    return labels if both.pair.difference.mean < 0 else labels[::-1]


def _context(results: Results) -> str:
    """What context gain says at the longest length past L, and how far the arms are usable."""
    lengths = [k for k in results.multiples if k > 1]
    longest = longest_gain(results.arms, results.multiples)
    undefined = [
        item.arm.label
        for item in results.arms
        if any(run.max_length is not None for run in item.arm.finished)
        and not any(f"{kind}_{name(k)}" in item.figures for kind in cells.WINDOWS for k in lengths)
    ]
    ends = f"past L, {listing(undefined, NAMED)} {'is' if len(undefined) == 1 else 'are'} not defined"
    if longest is None:
        return ends if undefined else "nothing was measured past L"
    gains = f"context gain at {multiple(longest)} {_gains(results, longest)}"
    return _joined(gains, _usable(results), ends if undefined else "")


def _gains(results: Results, k: float) -> str:
    gains = [(item, one) for item in results.arms if (one := item.figures.get(gain(k))) is not None]
    sure = [(item, one.mean, one.half_width) for item, one in gains if one.half_width is not None]
    if not sure:
        return f"lies {_between(gains, sign=True)}"
    claimed = {item.arm.label for item, _, _ in sure if holds(results.claims, gain(k), item.arm.label, None)}
    above = [
        one for one in sorted(sure, key=lambda one: -one[1]) if one[0].arm.label in claimed and one[1] > 0
    ]
    shown = [f"{item.arm.label} ({interval(mean, half, 3, sign=True)})" for item, mean, half in above]
    parts = _phrases(
        ("above 0 for", shown or ["no arm"]),
        ("below 0 for", [item.arm.label for item, mean, _ in sure if item.arm.label in claimed and mean < 0]),
        ("within noise for", [item.arm.label for item, _, _ in sure if item.arm.label not in claimed]),
    )
    return f"is {', '.join(parts)}"


def _usable(results: Results) -> str:
    """Both usable lengths: against each arm's own loss at L, and against one loss for all."""
    own, fixed = cells.usable_keys(results)
    relative, absolute = _reaches(results, RELATIVE, own), _reaches(results, FIXED, fixed)
    return _joined(
        f"usable length by an arm's own loss at L is {relative}" if relative else "",
        f"by one fixed loss ({cells.fixed_limit(results)}) it is {absolute}" if absolute else "",
    )


def _reaches(results: Results, kind: str, key: str) -> str:
    """One of the usable lengths of every arm, the longest first."""
    reach: dict[str, tuple[tuple[float, float], list[str]]] = {}
    for item in results.arms:
        lengths = item.by_seed(f"{kind}_multiple").values()
        if lengths:
            shown = cells.usable(usable_columns(item.rows, kind), key).text
            text = shown.replace("≥", "at least").replace("< L", "less than L")
            reach.setdefault(text, ((min(lengths), max(lengths)), []))[1].append(item.arm.label)
    groups = sorted(reach.items(), key=lambda one: one[1][0], reverse=True)
    unit = " tokens" if results.context_length is not None else ""
    parts = [
        f"{text}{'' if i else unit} for {listing(labels, NAMED)}"
        for i, (text, (_, labels)) in enumerate(groups[:NAMED])
    ]
    left = sum(len(labels) for _, (_, labels) in groups[NAMED:])
    parts += [f"others for {left} more"] if left else []
    return ", ".join(parts)


def fastest(results: Results) -> tuple[str, ...]:
    """Who gets to the target sooner or later, by name alone: a table beside has the numbers."""
    return _sentences(_target(results, lambda item: item.arm.label))


def _target(results: Results, shown: Callable[[ArmFigures], str]) -> str:
    """The time to the target, each arm that a test tells from the reference as `shown`; "" without ratios."""
    ratios = [
        (item, item.ratios[TARGET])
        for item in results.arms
        if item is not results.reference and TARGET in item.ratios
    ]
    if not ratios:
        return ""
    target = f"the loss of {results.reference.arm.label} at 75 % of its budget"
    if results.seeds < 2:
        exact = sorted((ratio.mean, item.arm.label) for item, ratio in ratios if ratio.mean is not None)
        ends = [f"×{number(mean, 3)} ({label})" for mean, label in dict.fromkeys([*exact[:1], *exact[-1:]])]
        missed = [item.arm.label for item, _ in ratios if item.reached[TARGET][0] == 0]
        between = f"{'between ' if len(ends) > 1 else ''}{' and '.join(ends)}"
        parts = [f"takes {between} of its tokens"] if ends else []
        parts += _phrases(("is not reached by", missed))
        return f"{target} {' and '.join(parts)}" if parts else ""
    label = results.reference.arm.label
    claimed = [(item, ratio) for item, ratio in ratios if holds(results.claims, TIME, item.arm.label, label)]
    sooner = [item for item, ratio in claimed if (ratio.high or math.inf) < 1]
    later = [item for item, ratio in claimed if (ratio.low or 0) > 1]
    sooner.sort(key=lambda item: item.ratios[TARGET].high or math.inf)
    left = [item for item, _ in ratios if item not in sooner and item not in later]
    unclear = [_reached(item) for item in left if item.reached[TARGET][0]]
    parts = _phrases(
        ("sooner by", [shown(item) for item in sooner]),
        ("later, if at all, by", [shown(item) for item in later]),
        ("not clearly sooner or later by", unclear),
        ("by no run of", [item.arm.label for item in left if not item.reached[TARGET][0]]),
    )
    return f"{target} is reached {', '.join(parts)}"


def _timed(item: ArmFigures) -> str:
    """An arm, its time over the reference's, and how many of its runs got there."""
    row = {"seeds_finished": len(item.rows), **target_columns(item)}
    return _reached(
        item, f"{cells.over_reference(row, f'tokens_to_target{TARGET}_ratio').text} of its tokens, "
    )


def _reached(item: ArmFigures, time: str = "") -> str:
    """An arm, and how many of its runs got there."""
    hits, n = item.reached[TARGET]
    return f"{item.arm.label} ({time}{hits} of {n} run{'' if n == 1 else 's'})"


def _loss_at_length(results: Results) -> str:
    """The figure at L in the tested protocol."""
    return "sliding_1x" if results.primary is None else at_length(results.primary)


def differences_at_length(results: Results) -> list[tuple[str, float, bool]]:
    """Each arm's mean difference from the reference at L, and whether it is claimed."""
    figure, label = _loss_at_length(results), results.reference.arm.label
    return [
        (item.arm.label, item.difference.mean, holds(results.claims, figure, item.arm.label, label))
        for item in results.comparisons
        if item.figure == figure and item.difference.half_width is not None
    ]


def _at_length(results: Results) -> str:
    figure = _loss_at_length(results)
    words = cells.figure_words(figure).partition(" at ")[0]
    if results.seeds < 2:
        same = {item.arm.label for item in results.comparisons} | {results.reference.arm.label}
        compared = (item for item in results.arms if item.arm.label in same)
        losses = [(item, one) for item in compared if (one := item.figures.get(figure)) is not None]
        return f"the {words} at L lies {_between(losses)}" if len(losses) > 1 else ""
    at = differences_at_length(results)
    parts = _phrases(
        ("lower for", [arm for arm, mean, claimed in at if claimed and mean < 0]),
        ("higher for", [arm for arm, mean, claimed in at if claimed and mean > 0]),
        ("within noise for", [arm for arm, _, claimed in at if not claimed]),
    )
    return f"at L the {words} is {', '.join(parts)}" if parts else ""


def _family(results: Results) -> str:
    """That all claims above are one family of tests, and how its false alarms are shared out."""
    kept, label = "", results.reference.arm.label
    if results.primary is not None and any(test.group is Group.REFERENCE for test in results.claims):
        kept = f"; most of these 5 % are kept for the {cells.figure_words(results.primary)} against {label}"
    besides = any(both.changes_places for both in results.both_protocols)
    which = "all claims here but that on the two protocols" if besides else "all claims here"
    return (
        f"{which} are one family of tests, by which at most 5 % of studies claim anything false "
        f"(Holm's correction{kept}), while each interval is a 95 % one by itself"
    )


def _between(estimates: Iterable[tuple[ArmFigures, Estimate]], sign: bool = False) -> str:
    """From the lowest to the highest mean, with whose they are."""
    ordered = sorted(estimates, key=lambda one: one[1].mean)
    shown = [f"{signed(one.mean) if sign else number(one.mean)} ({item.arm.label})" for item, one in ordered]
    return f"at {shown[0]}" if len(shown) == 1 else f"between {shown[0]} and {shown[-1]}"
