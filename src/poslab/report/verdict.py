"""The results of a study in sentences that claim no more than its tests show."""

import math
from collections.abc import Collection, Iterable, Iterator, Sequence

from poslab.analysis.claims import TARGET, TIME, Claim, gain
from poslab.analysis.comparisons import unlike
from poslab.analysis.estimates import ArmFigures
from poslab.analysis.protocols import counterpart, loss_at_length
from poslab.analysis.results import Results
from poslab.analysis.statistics import FALSE_ALARMS, grouped
from poslab.config.text import counted, listing
from poslab.record.measures import family, is_in_bits, multiple
from poslab.report import cells
from poslab.report.formatting import multiple as length_words
from poslab.report.formatting import number

NAMED = 3  # arms named in one list; the tables have all of them
# How an arm compares with the reference, with the prefixes of its readings.
READINGS: dict[str, tuple[str, ...]] = {
    "lower for": ("lower",),
    "higher for": ("higher",),
    "within noise for": ("within noise",),
    "not separated for": ("not separated",),
    "not tested for": ("one seed", "no spread"),
}
GATE = 0.02  # nats: an arm needs L if a context of L/2 costs it at least this much


def extrapolation(results: Results) -> Iterator[str]:
    """Yield which arms change places between the protocols, and which a longer context helps or harms."""
    if changed := [pair for pair in results.pairs if pair.changes_places]:
        tested = changed[0].figure
        pairs = [
            f"{' below '.join(pair.ordered)}{'' if pair.separated else ' (not separated)'}"
            for pair in changed
        ]
        yield (
            f"The two protocols order mean losses differently: {listing(pairs, NAMED)} "
            f"{cells.figure_place(tested)}, the other way round {cells.figure_place(counterpart(tested))}."
        )
    if tests := [test for test in results.claims if family(test.figure) == "context_gain"]:
        longest = tests[0].figure
        gains = {item.arm.label: item.mean(longest) or 0.0 for item in results.arms}
        order = falls, rises, falls_before, rises_before, neither = (
            "falls for",
            "rises for",
            "falls, but not after correction, for",
            "rises, but not after correction, for",
            "is not shown to change for",
        )

        def outcome(test: Claim) -> str:
            falling = gains[test.arm] > 0
            if test.holds:
                return falls if falling else rises
            if test.p < FALSE_ALARMS:
                return falls_before if falling else rises_before
            return neither

        parts = phrases(order, ((outcome(test), test.arm) for test in tests))
        # The gain of one arm is tested over seeds only, so it holds for the scored documents.
        text = " on this text" if results.one_text else ", each arm on its own text,"
        length = length_words(multiple(longest))
        yield f"From L to {length}, the loss in sliding windows{text} {'; it '.join(parts)}."


def without_context(results: Results) -> list[ArmFigures]:
    """Return the arms that do not need a context of L: sliding windows of L/2 cost them less than GATE.

    That such an arm keeps its loss past L shows little.
    """
    gains = [(item, item.mean(gain(1 / 2))) for item in results.arms]
    return [item for item, value in gains if value is not None and -value < GATE]


def context_used(parts: Sequence[Results]) -> str:
    """Return a sentence on the arms that do not need a context of L, with the context they use if measured.

    `parts` are the texts of a study. An arm is named if it needs L on none of them; "" if there is none.
    """
    every = [item for part in parts for item in part.arms if item.rows]
    unused = [item for part in parts for item in without_context(part)]
    measured = [item for item in every if item.mean(gain(1 / 2)) is not None]
    needing = {item.arm.label for item in measured if item not in unused}
    arms = list(dict.fromkeys(item.arm.label for item in unused if item.arm.label not in needing))
    if not arms:
        return ""
    rest = list(dict.fromkeys(item.arm.label for item in every if item.arm.label not in arms))
    of_others = len(rest) < len(arms) and needing.issuperset(rest)  # the rest was measured too
    only = f"Only {cells.lone_arm(rest[0]) if len(rest) == 1 else listing(rest, NAMED)}" if rest else "No arm"
    subject = f"{only} {'are' if len(rest) > 1 else 'is'}"
    if not of_others:
        subject = (
            f"The arm {arms[0]} is not" if len(arms) == 1 else f"The arms {listing(arms, NAMED)} are not"
        )
    remaining = " of the others" if rest and of_others else ""
    used = [
        (length, item.arm.context_length)
        for item in unused
        for length in item.by_seed("context_used").values()
    ]
    fewer = used and all(length < whole for length, whole in used)
    enough = f"; a context of {counted(round(max(used)[0]), 'token')} is enough" if fewer else ""
    return (
        f"{subject} seen to need a context of L: with half of it, the loss{remaining} rises by less than "
        f"{GATE:g} nats{enough}. If an arm does not need L, a loss that stays the same past L shows little, "
        "but a rise is a failure."
    )


def convergence(results: Results) -> Iterator[str]:
    """Yield which arms reach the reference's loss at 75 % of its budget sooner or later, if known."""
    reference, beside = results.reference, results.beside_reference
    ratios = {item.arm.label: item.ratios[TARGET] for item in results.arms if TARGET in item.ratios}
    rivals = [item for item in results.arms if item is not reference]
    if not any(item.arm.label in ratios for item in rivals):
        return
    claimed = {test.arm for test in results.claims if test.figure == TIME and test.holds}
    tested = any(over.n > 1 for over in ratios.values())
    order = (
        "sooner by",
        "later, if at all, by",
        "neither clearly sooner nor later by" if tested else "by",
        "by no run of",
        "it is not compared for",  # times are compared only at the size and budget of the reference
    )
    sooner, later, unclear, never, apart = order

    def outcome(item: ArmFigures) -> tuple[str, str]:
        label, over = item.arm.label, ratios.get(item.arm.label)
        if over is None or item not in beside:
            return apart, label
        if label in claimed and (over.high or math.inf) < 1:
            return sooner, label
        if label in claimed and (over.low or 0) > 1:
            return later, label
        hits, n = item.reached[TARGET]
        return (unclear, f"{label} ({hits} of {counted(n, 'run')})") if hits else (never, label)

    ends = {label: ratios[label].high or 1.0 for label in claimed & ratios.keys()}
    rivals.sort(key=lambda item: min(1.0, ends.get(item.arm.label, 1.0)))  # the soonest first
    parts = phrases(order, map(outcome, (item for item in rivals if item.rows or item.arm.label in ratios)))
    start = f"the loss of {reference.arm.label} at 75 % of its budget is reached {'; '.join(parts)}"
    yield sentence(f"{on_text(results)}, {start}" if results.seeds > 1 else start)


def sentence(text: str) -> str:
    """Return a text as a sentence, with a capital letter and a full stop."""
    return f"{text[0].upper()}{text[1:]}."


def without_winner(results: Results) -> str:
    """Return the reason why no arm is ranked, and the range of the losses."""
    reference, primary = results.reference, results.primary
    label = reference.arm.label
    compared = {label, *(end for pair in results.pairs for end in pair.ordered)}
    means = {item.arm.label: item.mean(primary or "") for item in results.arms}
    losses = {arm: mean for arm, mean in means.items() if mean is not None and arm in compared}
    past = f" {cells.figure_place(primary)}" if primary and compares_at_length(results) else ""
    if primary is None or not losses:
        lost = "sliding loss at L" if primary is None else cells.figure_words(primary)
        lacks = lost if reference.rows else "finished run"
        return f"Nothing is compared{past}: the reference, {label}, has no {lacks}"
    if len(compared) == 1:
        unpaired = "no other arm has a comparable loss on the same seeds"
        why = "it is the only arm" if len(results.arms) == 1 else unpaired
        loss = f"its {cells.figure_words(primary)} is {number(losses[label])}"
        return f"Nothing is compared with {label}{past}, as {why}: {loss}{left_out(results, [label])}"
    why = "There is one run per arm" if results.seeds < 2 else "No two arms share two seeds"
    lowest, highest = min(losses, key=losses.__getitem__), max(reversed(losses), key=losses.__getitem__)
    between = f"{number(losses[lowest])} ({lowest}) and {number(losses[highest])} ({highest})"
    if label in losses.keys() - {lowest, highest}:
        between += f"; {label}, the reference, has {number(losses[label])}"
    in_bits = " in bits per byte" if is_in_bits(primary) else ""
    return (
        f"{why}, so no winner is claimed: the loss{in_bits} {cells.figure_place(primary)} lies between "
        f"{between}{left_out(results, losses)}"
    )


def on_text(results: Results, documents: Sequence[int] = ()) -> str:
    """Return the text to which a comparison applies, with the number of documents in its interval."""
    text = "this text" if results.one_text else f"the text of {results.reference.arm.label}"
    if not any(run.has_text for run in results.finished):
        return "on this task"
    if not documents:
        return f"on {text}"
    return f"over {cells.span(documents)} {results.called_documents} of {text}"


def left_out(results: Results, compared: Collection[str]) -> str:
    """Return the labels of the arms not in `compared`, with the reasons for the tested figure."""
    apart = [item for item in results.arms if item.arm.label not in compared]
    return not_compared((why_apart(item, results, results.primary), item.arm.label) for item in apart)


def not_compared(reasons: Iterable[tuple[str, str]]) -> str:
    """Return the end of a sentence that lists arms by the reason they are not compared; "" without any."""
    groups = [f"{listing(labels, NAMED)} ({why})" for why, labels in grouped(reasons).items()]
    return f"; not compared: {', '.join(groups)}" if groups else ""


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


def phrases(order: Iterable[str], found: Iterable[tuple[str, str]], limit: int = NAMED) -> list[str]:
    """Return phrases such as "lower for a and b" from pairs of words and label, in the order of `order`."""
    groups = grouped(found)
    return [
        f"{words} {cells.lone_arm(labels[0]) if len(labels) == 1 else listing(labels, limit)}"
        for words in order
        if (labels := groups.get(words))
    ]


def at_length(results: Results) -> str:
    """Return how the arms compare with the reference in the loss at L; "" with fewer than two seeds."""
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
    return f"At L, the loss {cells.PLACES[family(figure)]}, against {reference}, is {'; '.join(parts)}."


def compares_at_length(results: Results) -> bool:
    """Return whether the loss at L is tested in addition to a tested figure past L."""
    figure = loss_at_length(results.reference, results.primary)
    past = results.tested_multiple > 1
    return past and any(item.figure == figure and item.p_holm is not None for item in results.comparisons)
