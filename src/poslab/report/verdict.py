"""A study in sentences that claim no more than its tests hold."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain

from poslab.analysis.claims import TARGET, TIME, gain, longest_gain
from poslab.analysis.comparisons import Comparison, unlike
from poslab.analysis.estimates import ArmFigures
from poslab.analysis.protocols import counterpart, loss_at_length
from poslab.analysis.results import Results
from poslab.analysis.statistics import Estimate, grouped
from poslab.config.text import counted, listing
from poslab.record.measures import family, is_in_bits
from poslab.report import cells
from poslab.report.formatting import multiple as length_words
from poslab.report.formatting import number

NAMED = 3  # arms in one list; the tables have them all
# How an arm compares with the reference, by the beginnings of its readings.
READINGS: dict[str, tuple[str, ...]] = {
    "lower for": ("lower",),
    "higher for": ("higher",),
    "within noise for": ("within noise",),
    "not separated for": ("not separated",),
    "not tested for": ("one seed", "no spread"),
}
GATE = 0.02  # nats that a target must lose where it keeps L/2 of L tokens before it, else L is not used


def extrapolation(results: Results) -> tuple[str, ...]:
    """Return sentences on what the tables past the training length do not show by themselves."""
    return _sentences(_other_protocol(results), _gains(results))


def without_context(results: Results) -> list[ArmFigures]:
    """Return the arms that do not need a context of L: in sliding windows of L/2 they lose less than GATE.

    What such an arm keeps past L it would not miss.
    """
    gains = [(item, item.mean(gain(1 / 2))) for item in results.arms]
    return [item for item, value in gains if value is not None and -value < GATE]


def context_used(parts: Sequence[Results]) -> str:
    """Return which arms do not need a context of L, and how much they use where it was measured; or "".

    `parts` are those of a study on several texts; an arm is named that does not need it on any of its texts.
    """
    unused = [without_context(part) for part in parts]
    measured = [_labels(item for item in part.arms if item.mean(gain(1 / 2)) is not None) for part in parts]
    needing = {
        name for labels, items in zip(measured, unused, strict=True) for name in {*labels} - {*_labels(items)}
    }
    arms = [name for name in dict.fromkeys(chain(*measured)) if name not in needing]
    if not arms:
        return ""
    every = {item.arm.label for part in parts for item in part.arms if item.rows}
    known = every == {*chain(*measured)}  # else no sentence covers all arms
    used = [
        (length, item.arm.context_length)
        for items in unused
        for item in items
        for length in item.by_seed("context_used").values()
    ]
    fewer = all(length < whole for length, whole in used)
    enough = ""
    if used and fewer:
        most = max(used)[0]
        enough = f"; {counted(round(most), 'token')} {'is' if most == 1 else 'are'} enough"
    of_others = ""
    if not needing and known:
        need = "No arm needs"
    elif len(arms) == 1:
        need = f"The arm {arms[0]} does not need"
    elif known and len(needing) < len(arms):
        need, of_others = f"No arm but {listing(sorted(needing), NAMED)} needs", " of the others"
    else:
        need = f"The arms {listing(arms, NAMED)} do not need"
    return (
        f"{need} a context of L: without half of it the loss{of_others} rises by less than {GATE:g} "
        f"nats{enough}. If it stays as low past L that shows little, and if it rises that is a failure."
    )


def _labels(items: Iterable[ArmFigures]) -> list[str]:
    return [item.arm.label for item in items]


def convergence(results: Results) -> tuple[str, ...]:
    """Return who reaches the reference's loss at 75 % of its budget sooner or later."""
    target = _target(results)
    return _sentences(f"{on_text(results)}, {target}" if target and results.seeds > 1 else target)


def _joined(*clauses: str) -> str:
    return "; ".join(filter(None, clauses))


def sentence(text: str) -> str:
    """Return a text as a sentence: with a capital and a full stop."""
    return f"{text[0].upper()}{text[1:]}."


def _sentences(*clauses: str) -> tuple[str, ...]:
    return tuple(map(sentence, filter(None, clauses)))


def without_winner(results: Results) -> str:
    """Return why no arm is ranked, and the range of the losses."""
    reference, primary = results.reference, results.primary
    label = reference.arm.label
    if primary is None:
        lacks = "sliding loss at L" if reference.rows else "finished run"
        return f"Nothing is compared: the reference, {label}, has no {lacks}"
    paired = {arm.label for pair in results.pairs for arm in (pair.arm, pair.against)}
    compared = [item for item in results.arms if item is reference or item.arm.label in paired]
    past = f" {cells.figure_place(primary)}" if compares_at_length(results) else ""
    if len(compared) == 1 and primary not in reference.figures:
        return f"Nothing is compared{past}: the reference, {label}, has no {cells.figure_words(primary)}"
    if len(compared) == 1:
        unpaired = "no other arm has a comparable loss on the same seeds"
        why = "it is the only arm" if len(results.arms) == 1 else unpaired
        loss = f"its {cells.figure_words(primary)} is {number(reference.mean(primary))}"
        sentence = f"Nothing is compared with {label}{past}, as {why}: {loss}"
        return _joined(sentence, left_out(results, [label]))
    where = cells.figure_place(primary)
    why = "In one run each" if results.seeds < 2 else "Without two seeds that arms share"
    losses = [(item, mean) for item in compared if (mean := item.figures.get(primary)) is not None]
    between = _between(losses)
    if f"({label})" not in between and primary in reference.figures:
        between += f", {number(reference.mean(primary))} for {label}, the reference"
    in_bits = " in bits per byte" if is_in_bits(primary) else ""
    range_of_losses = f"{why}, so no winner is claimed: the loss{in_bits} {where} lies {between}"
    return _joined(range_of_losses, left_out(results, [item.arm.label for item, _ in losses]))


def on_text(results: Results, documents: Sequence[int] = ()) -> str:
    """Return the text that a comparison holds for, with the number of documents in its interval."""
    text = "this text" if results.one_text else f"the text of {results.reference.arm.label}"
    if not any(run.has_text for run in results.finished):
        return "on this task"
    if not documents:
        return f"on {text}"
    return f"over {cells.span(documents)} {results.called_documents} of {text}"


def left_out(results: Results, compared: Collection[str]) -> str:
    """Return the arms by label that are not among `compared` in the tested figure, with reasons."""
    apart = [item for item in results.arms if item.arm.label not in compared]
    reasons = grouped((why_apart(item, results, results.primary), item.arm.label) for item in apart)
    return not_compared(reasons)


def not_compared(reasons: Mapping[str, list[str]]) -> str:
    """Return arms by the reason why they are not compared; "" without any."""
    groups = [f"{listing(labels, NAMED)} ({why})" for why, labels in reasons.items() if labels]
    return f"not compared: {', '.join(groups)}" if groups else ""


def why_apart(item: ArmFigures, results: Results, figure: str | None) -> str:
    """Return why an arm is not compared with the reference in a figure."""
    if not item.rows:
        return "no finished run"
    reasons = (unlike(run, results.reference.arm, is_in_bits(figure)) for run in item.arm.finished)
    if (reason := next(filter(None, reasons), None)) is not None:
        return reason
    if figure not in item.figures:
        bounded = any(run.max_length is not None for run in item.arm.finished)
        return "not defined there" if bounded else "not measured there"
    shared = item.by_seed(figure or "").keys() & results.reference.by_seed(figure or "").keys()
    return f"without {'two seeds' if shared else 'a seed'} in common"


def phrases(order: Iterable[str], found: Iterable[tuple[str, str]]) -> list[str]:
    """Return labels by the words before them, in the order of these: "lower for a and b"."""
    groups = grouped(found)
    return [
        f"{words} {cells.lone_arm(labels[0]) if len(labels) == 1 else listing(labels, NAMED)}"
        for words in order
        if (labels := groups.get(words))
    ]


def _other_protocol(results: Results) -> str:
    """Return which arms change places between the two protocols at the tested length; "" where none do."""
    changed = [pair for pair in results.pairs if pair.changes_places]
    if not changed or results.primary is None:
        return ""
    figures = results.primary, counterpart(results.primary)
    tested, untested = (cells.WINDOWS[family(figure)] for figure in figures)
    length = cells.figure_words(results.primary).partition(" at ")[2]
    pairs = [
        f"{' below '.join(_ordered(pair))}{'' if pair.separated else ' (not separated)'}" for pair in changed
    ]
    return (
        f"the two protocols order mean losses differently at {length}: {listing(pairs, NAMED)} in {tested}, "
        f"the other way round in {untested}"
    )


def _ordered(pair: Comparison) -> tuple[str, str]:
    """Return the arm with the lower mean, and the other one."""
    labels = pair.arm.label, pair.against.label
    return labels if pair.difference.mean < 0 else labels[::-1]


def _gains(results: Results) -> str:
    """Return whom a longer context helps or harms at the longest length past L; "" where it is not tested."""
    longest = longest_gain(results.arms, results.multiples)
    tests = [] if longest is None else [test for test in results.claims if test.figure == gain(longest)]
    if longest is None or not tests:
        return ""
    gains = {item.arm.label: item.mean(gain(longest)) or 0.0 for item in results.arms}
    above, below, neither = "falls for", "rises for", "is not shown to change for"
    found = (
        (neither if not test.holds else above if gains[test.arm] > 0 else below, test.arm) for test in tests
    )
    parts = phrases((above, below, neither), found)
    text = "" if results.one_text else ", each on its own text"
    return f"from L to {length_words(longest)} the loss in sliding windows{text} {', '.join(parts)}"


def _target(results: Results) -> str:
    """Return who reaches the target sooner or later; "" without ratios."""
    timed = [item for item in results.arms if item is not results.reference and TARGET in item.ratios]
    if not timed:
        return ""
    label = results.reference.arm.label
    claimed = {test.arm for test in results.claims if test.figure == TIME and test.holds}
    # Times are tested at the size and budget of the reference only.
    beside = results.beside_reference
    tested = any(item.ratios[TARGET].n > 1 for item in timed)
    sooner, later, never = "sooner by", "later, if at all, by", "by no run of"
    unclear, elsewhere = "not clearly sooner or later by" if tested else "by", "at another size or budget by"

    def found(item: ArmFigures) -> tuple[str, str]:
        over, (hits, n) = item.ratios[TARGET], item.reached[TARGET]
        if item.arm.label in claimed and (over.high or math.inf) < 1:
            return sooner, item.arm.label
        if item.arm.label in claimed and (over.low or 0) > 1:
            return later, item.arm.label
        if not hits:
            return never, item.arm.label
        return unclear if item in beside else elsewhere, f"{item.arm.label} ({hits} of {counted(n, 'run')})"

    ends = {item.arm.label: item.ratios[TARGET].high or 1.0 for item in timed if item.arm.label in claimed}
    timed.sort(key=lambda item: min(1.0, ends.get(item.arm.label, 1.0)))  # the soonest first
    parts = phrases((sooner, later, unclear, elsewhere, never), map(found, timed))
    no_target, no_seed = "it is no target of", f"no seed in common with {label} for"
    untimed = [item for item in results.arms if item.rows and item not in (results.reference, *timed)]
    apart = ((no_seed if item.times else no_target, item.arm.label) for item in untimed)
    reached = f"the loss of {label} at 75 % of its budget is reached {', '.join(parts)}"
    return _joined(reached, "; ".join(phrases((no_target, no_seed), apart)))


def at_length(results: Results) -> str:
    """Return which arms differ from the reference in the loss at L; "" without two seeds."""
    figure, reference = loss_at_length(results.reference, results.primary), results.reference.arm.label
    compared = [item for item in results.comparisons if item.figure == figure]
    if results.seeds < 2 or not compared:
        return ""
    known = {reference, *(item.arm.label for item in compared)}
    found = [
        (words, item.arm.label)
        for item in compared
        for words, readings in READINGS.items()
        if item.reading.startswith(readings)
    ]
    apart = "not compared for"
    found += [(apart, i.arm.label) for i in results.arms if i.rows and i.arm.label not in known]
    parts = phrases((*READINGS, apart), found)
    return f"At L the loss {cells.PLACES[family(figure)]}, against {reference}, is {', '.join(parts)}."


def compares_at_length(results: Results) -> bool:
    """Return whether the loss at L is tested beside a tested figure past it."""
    figure = loss_at_length(results.reference, results.primary)
    past = results.tested_multiple > 1
    return past and any(item.figure == figure and item.p_holm is not None for item in results.comparisons)


def _between(estimates: Iterable[tuple[ArmFigures, Estimate]]) -> str:
    """Return the range of means with the arms at its ends."""
    ordered = sorted(estimates, key=lambda pair: pair[1].mean)
    means = [number(mean.mean) for _, mean in ordered]
    labels = [item.arm.label for item, _ in ordered]
    return f"between {means[0]} ({labels[0]}) and {means[-1]} ({labels[-1]})"
