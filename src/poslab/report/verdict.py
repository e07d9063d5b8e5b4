"""A study in a few sentences that claim no more than its intervals hold, from the cells of its CSV files."""

import math
from collections.abc import Callable, Collection, Iterable, Sequence

from poslab.analysis.claims import TARGET, TIME, Group, gain, holds, longest_gain
from poslab.analysis.comparisons import Comparison, unlike
from poslab.analysis.estimates import FIXED, RELATIVE, ArmFigures, target_columns, usable_columns
from poslab.analysis.protocols import BothProtocols, at_length, counterpart, loss_at_length
from poslab.analysis.results import Results
from poslab.analysis.statistics import EXPLORATORY, Estimate
from poslab.config.text import listing
from poslab.record.measures import family, is_in_bits, multiple, name, unit
from poslab.report import cells
from poslab.report.formatting import interval, number, percent, signed
from poslab.report.formatting import multiple as length_words

NAMED = 3  # arms in one list; the tables have them all


def sentences(results: Results) -> tuple[str, ...]:
    """All that is claimed, sentence by sentence: past the training length, on the way, how sure it is."""
    return (*extrapolation(results), *convergence(results), *belief(results))


def extrapolation(results: Results) -> tuple[str, ...]:
    """What is claimed of the tested figure, of what a longer context is worth, and of usable lengths."""
    return _sentences(winner(results), _other_protocol(results), _context(results))


def convergence(results: Results) -> tuple[str, ...]:
    """Who gets to the reference's loss at 75 % of its budget and how fast, and the loss at L."""
    past = results.primary is not None and results.tested_multiple != 1
    said = _joined(_target(results, _timed), _at_length(results) if past else "")
    return _sentences(_of_text(results, said))


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
        alone = f"Nothing is compared with {label}, as {why}: {_described(reference, primary)}"
        return _joined(alone, left_out(results, [label]))
    where = cells.figure_place(primary)
    if not results.ranks:
        why = "In one run each" if results.seeds < 2 else "Without two seeds that arms share"
        losses = [(item, one) for item in compared if (one := item.figures.get(primary)) is not None]
        between = _between(losses)
        if f"({label})" not in between and primary in reference.figures and between.startswith("between"):
            between += f", {number(reference.mean(primary))} for {label}, the reference"
        range_of_losses = f"{why}, so no winner is claimed: the loss {where} lies {between}"
        return _joined(range_of_losses, left_out(results, [item.arm.label for item, _ in losses]))
    seeds = sorted(pair.difference.n for pair in results.pairs if pair.difference.n > 1)
    few = " (exploratory)" if seeds[0] < EXPLORATORY else ""
    said = f"With {cells.span(seeds)} seeds{few} {on_text(results)}, {where} {_first(results)}"
    return _joined(said, _against(results), left_out(results, {*paired, label}))


def on_text(results: Results) -> str:
    """What a comparison over seeds alone is true of: its interval holds no chance of the text."""
    return "on this text" if results.one_text else f"on the text of {results.reference.arm.label}"


def _of_text(results: Results, said: str) -> str:
    """What is said with intervals over seeds, after the text that it is true of."""
    return f"{on_text(results)}, {said}" if said and results.seeds > 1 else said


def left_out(results: Results, compared: Collection[str]) -> str:
    """The arms of the table, by label, that are not among `compared` in the tested figure, and why."""
    reasons: dict[str, list[str]] = {}
    for item in results.arms:
        if item.arm.label not in compared:
            reasons.setdefault(_why_apart(item, results), []).append(item.arm.label)
    groups = [f"{listing(labels, NAMED)} ({why})" for why, labels in reasons.items()]
    return f"not compared: {', '.join(groups)}" if groups else ""


def _why_apart(item: ArmFigures, results: Results) -> str:
    if not item.rows:
        return "no finished run"
    reasons = (unlike(run, results.reference.arm, is_in_bits(results.primary)) for run in item.arm.finished)
    if (reason := next(filter(None, reasons), None)) is not None:
        return reason
    if results.primary not in item.figures:
        bounded = any(run.max_length is not None for run in item.arm.finished)
        return "not defined there" if bounded else "not measured there"
    return "without two seeds in common"


def _described(item: ArmFigures, primary: str) -> str:
    """The loss of an arm that is compared with no other, at L and at the tested length."""
    first, (words, _, length) = item.mean(at_length(primary)), cells.figure_words(primary).partition(" at ")
    if primary == at_length(primary):
        return f"its {words} at L is {number(first)}"
    change = item.mean(f"{family(primary)}_change_{name(multiple(primary))}")
    by = "" if change is None else f" ({percent(change)})"
    return f"its {words} goes from {number(first)} at L to {number(item.mean(primary))} at {length}{by}"


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
    tested, label = results.tested, results.reference.arm.label
    lower = sorted((i for i in tested if i.reading.startswith("lower")), key=lambda i: i.difference.mean)
    higher = sorted((i for i in tested if i.reading.startswith("higher")), key=lambda i: -i.difference.mean)
    known = {label, *(item.arm.label for item in tested)}
    paired = dict.fromkeys(arm.label for pair in results.pairs for arm in (pair.arm, pair.other))
    parts = _phrases(
        ("lower for", _effects(lower)),
        # Numbers for the worse ones only where there is nothing better.
        ("higher for", [item.arm.label for item in higher] if lower else _effects(higher)),
        *_not_told_apart(tested),
        ("without a common seed for", [other for other in paired if other not in known]),
    )
    if results.primary not in results.reference.figures:
        return f"{label}, the reference, has no loss there, so nothing is tested against it"
    if not parts:
        return f"no arm shares a seed with {label}, the reference"
    return f"against {label}, the reference, the loss is {', '.join(parts)}"


def _not_told_apart(comparisons: Iterable[Comparison]) -> list[tuple[str, list[str]]]:
    """The arms of which neither lower nor higher is claimed, by why."""
    read = [(item.arm.label, item.reading) for item in comparisons]
    return [
        ("within noise for", [arm for arm, reading in read if reading == "within noise"]),
        ("not separated for", [arm for arm, reading in read if reading.startswith("not separated")]),
        ("not tested for", [arm for arm, reading in read if reading in ("one seed", "no spread")]),
    ]


def _phrases(*groups: tuple[str, list[str]]) -> list[str]:
    """ "lower for a and b": the words of each group that has any labels, with these."""
    return [f"{words} {listing(labels, NAMED)}" for words, labels in groups if labels]


def _effects(comparisons: Sequence[Comparison]) -> list[str]:
    shown = []
    for item in comparisons:
        size = interval(item.difference.mean, item.difference.half_width, 3, sign=True)
        deviations = item.difference.deviations
        spread = "" if deviations is None else f", {number(deviations, 2)} seed SD"
        shown.append(f"{item.arm.label} ({size} {_short(item.figure)}{spread})")
    return shown


def _short(figure: str) -> str:
    return unit(figure).removesuffix(" a token")


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
    on = "" if results.seeds < 2 else "on this text, " if results.one_text else "each on its own text, "
    gains = f"{on}context gain at {length_words(longest)} {_gains(results, longest, undefined)}"
    return _joined(gains, _usable(results), ends if undefined else "")


def _gains(results: Results, k: float, undefined: Collection[str]) -> str:
    """Of every arm but those that are `undefined` past L, by label."""
    gains = [(item, one) for item in results.arms if (one := item.figures.get(gain(k))) is not None]
    known = {*undefined, *(item.arm.label for item, _ in gains)}
    unknown = [item.arm.label for item in results.arms if item.rows and item.arm.label not in known]
    sure = [(item.arm.label, one.mean, one.half_width) for item, one in gains if one.half_width is not None]
    if not sure:
        return ", ".join([f"lies {_between(gains, sign=True)}", *_phrases(("not measured for", unknown))])
    tests = {test.arm: test.holds for test in results.claims if test.figure == gain(k)}
    above = [one for one in sorted(sure, key=lambda one: -one[1]) if tests.get(one[0]) and one[1] > 0]
    left = [(arm, abs(mean) <= half) for arm, mean, half in sure if tests.get(arm) is False]
    parts = _phrases(
        ("above 0 for", [f"{arm} ({interval(mean, half, 3, sign=True)})" for arm, mean, half in above]),
        ("below 0 for", [arm for arm, mean, _ in sure if tests.get(arm) and mean < 0]),
        ("within noise for", [arm for arm, is_noise in left if is_noise]),
        ("not separated from 0 for", [arm for arm, is_noise in left if not is_noise]),
        ("not tested for", [item.arm.label for item, _ in gains if item.arm.label not in tests]),
        ("not measured for", unknown),
    )
    return f"is {', '.join(parts if above else ['above 0 for no arm', *parts])}"


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
    unknown = [item.arm.label for item in results.arms if item.rows and not item.by_seed(f"{kind}_multiple")]
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
    return ", ".join([*parts, *_phrases(("not taken for", unknown))]) if parts else ""


def fastest(results: Results) -> tuple[str, ...]:
    """Who gets to the target sooner or later, by name alone: a table beside has the numbers."""
    return _sentences(_of_text(results, _target(results, lambda item: item.arm.label)))


def _target(results: Results, shown: Callable[[ArmFigures], str]) -> str:
    """The time to the target, each arm that a test tells from the reference as `shown`; "" without ratios."""
    ratios = [
        (item, item.ratios[TARGET])
        for item in results.arms
        if item is not results.reference and TARGET in item.ratios
    ]
    if not ratios:
        return ""
    known = {results.reference.arm.label, *(item.arm.label for item, _ in ratios)}
    others = [item.arm.label for item in results.arms if item.rows and item.arm.label not in known]
    target = f"the loss of {results.reference.arm.label} at 75 % of its budget"
    if results.seeds < 2:
        exact = sorted((ratio.mean, item.arm.label) for item, ratio in ratios if ratio.mean is not None)
        ends = [f"×{number(mean, 3)} ({label})" for mean, label in dict.fromkeys([*exact[:1], *exact[-1:]])]
        missed = [item.arm.label for item, _ in ratios if item.reached[TARGET][0] == 0]
        between = f"{'between ' if len(ends) > 1 else ''}{' and '.join(ends)}"
        parts = [f"takes {between} of its tokens"] if ends else []
        parts += _phrases(("is not reached by", missed), ("is no target of", others))
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
    apart = "; ".join(_phrases(("it is no target of", others)))
    return _joined(f"{target} is reached {', '.join(parts)}", apart)


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


def differences_at_length(results: Results) -> list[Comparison]:
    """Every arm against the reference in the loss at L."""
    figure = loss_at_length(results.reference, results.primary)
    return [item for item in results.comparisons if item.figure == figure]


def not_compared_at_length(results: Results) -> list[str]:
    """The arms with finished runs whose loss at L is not compared with the reference's, by label."""
    known = {results.reference.arm.label, *(item.arm.label for item in differences_at_length(results))}
    return [item.arm.label for item in results.arms if item.rows and item.arm.label not in known]


def _at_length(results: Results) -> str:
    figure = loss_at_length(results.reference, results.primary)
    where, apart = cells.PLACES[family(figure)], ("not compared for", not_compared_at_length(results))
    if results.seeds < 2:
        same = {results.reference.arm.label, *(item.arm.label for item in differences_at_length(results))}
        compared = (item for item in results.arms if item.arm.label in same)
        losses = [(item, one) for item in compared if (one := item.figures.get(figure)) is not None]
        between = f"the loss at L {where} lies {_between(losses)}" if len(losses) > 1 else ""
        return ", ".join([between, *_phrases(apart)]) if between else ""
    at = differences_at_length(results)
    parts = _phrases(
        ("lower for", [item.arm.label for item in at if item.reading.startswith("lower")]),
        ("higher for", [item.arm.label for item in at if item.reading.startswith("higher")]),
        *_not_told_apart(at),
        apart,
    )
    return f"at L the loss {where} is {', '.join(parts)}" if at else ""


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
    """From the lowest to the highest mean, with whose they are; one value where they are printed alike."""
    ordered = sorted(estimates, key=lambda pair: pair[1].mean)
    shown = [signed(mean.mean) if sign else number(mean.mean) for _, mean in ordered]
    labels = [item.arm.label for item, _ in ordered]
    if shown[0] == shown[-1]:
        return f"at {shown[0]} ({listing(labels, NAMED)})"
    return f"between {shown[0]} ({labels[0]}) and {shown[-1]} ({labels[-1]})"
