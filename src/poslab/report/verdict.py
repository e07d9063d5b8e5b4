"""A study in a few sentences that claim no more than its intervals hold, from the cells of its CSV files."""

import math
from collections.abc import Callable, Collection, Iterable, Sequence

from poslab.analysis.claims import TARGET, TIME, gain, holds, longest_gain
from poslab.analysis.comparisons import Comparison, unlike
from poslab.analysis.estimates import FIXED, RELATIVE, ArmFigures, target_columns, usable_columns
from poslab.analysis.protocols import BothProtocols, counterpart, loss_at_length
from poslab.analysis.results import Results
from poslab.analysis.statistics import EXPLORATORY, Estimate
from poslab.config.text import listing
from poslab.record.measures import family, is_in_bits
from poslab.report import cells
from poslab.report.formatting import interval, number, signed
from poslab.report.formatting import multiple as length_words

NAMED = 3  # arms in one list; the tables have them all


def sentences(results: Results) -> tuple[str, ...]:
    """Return all claims of the chapters: past the training length, during training, certainty."""
    return (*extrapolation(results), *convergence(results), *belief(results))


def extrapolation(results: Results) -> tuple[str, ...]:
    """Return the claims on the tested figure, context gain and usable lengths."""
    return _sentences(winner(results), _other_protocol(results), *_context(results))


def convergence(results: Results) -> tuple[str, ...]:
    """Return which arms reach the reference's loss at 75 % of its budget, and how fast."""
    return _sentences(_of_text(results, _target(results, _timed)))


def belief(results: Results) -> tuple[str, ...]:
    """Return the error rate of the tests."""
    text = "At most 5 % of studies claim anything false (Holm's correction over claims.csv)."
    return (text,) if results.claims else ()


def _joined(*clauses: str) -> str:
    return "; ".join(filter(None, clauses))


def _sentences(*clauses: str) -> tuple[str, ...]:
    return tuple(f"{text[0].upper()}{text[1:]}." for text in clauses if text)


def winner(results: Results) -> str:
    """Return which arms differ from the reference on the primary figure, and by how much."""
    reference, primary = results.reference, results.primary
    label = reference.arm.label
    if primary is None:
        return f"Nothing is compared: the reference, {label}, has no sliding loss at L"
    paired = {arm.label for pair in results.pairs for arm in (pair.arm, pair.against)}
    compared = [item for item in results.arms if item is reference or item.arm.label in paired]
    if len(compared) == 1:
        unpaired = "no other arm has a comparable loss on the same seeds"
        why = "it is the only arm" if len(results.arms) == 1 else unpaired
        loss = f"its {cells.figure_words(primary)} is {number(reference.mean(primary))}"
        sentence = f"Nothing is compared with {label}, as {why}: {loss}"
        return _joined(sentence, left_out(results, [label]))
    where = cells.figure_place(primary)
    if not results.ranks:
        why = "In one run each" if results.seeds < 2 else "Without two seeds that arms share"
        losses = [(item, mean) for item in compared if (mean := item.figures.get(primary)) is not None]
        between = _between(losses)
        if f"({label})" not in between and primary in reference.figures and between.startswith("between"):
            between += f", {number(reference.mean(primary))} for {label}, the reference"
        range_of_losses = f"{why}, so no winner is claimed: the loss {where} lies {between}"
        return _joined(range_of_losses, left_out(results, [item.arm.label for item, _ in losses]))
    seeds = sorted(pair.difference.n for pair in results.pairs if pair.difference.n > 1)
    exploratory = " (exploratory)" if seeds[0] < EXPLORATORY else ""
    over = on_text(results, results.documents)
    return f"With {cells.span(seeds)} seeds{exploratory} {over}, {where}, {_against(results)}"


def on_text(results: Results, documents: Sequence[int] = ()) -> str:
    """Return the text that a comparison holds for, with the number of documents in its interval."""
    text = "this text" if results.one_text else f"the text of {results.reference.arm.label}"
    return f"over {cells.span(documents)} documents of {text}" if documents else f"on {text}"


def _of_text(results: Results, claim: str) -> str:
    """Put the text that a claim with intervals over seeds holds for before it."""
    return f"{on_text(results)}, {claim}" if claim and results.seeds > 1 else claim


def left_out(results: Results, compared: Collection[str]) -> str:
    """Return the arms by label that are not among `compared` in the tested figure, with reasons."""
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


def _against(results: Results) -> str:
    """Return the differences from the reference on the primary figure, corrected over all claims."""
    tested, label = results.tested, results.reference.arm.label
    lower = sorted((i for i in tested if i.reading.startswith("lower")), key=lambda i: i.difference.mean)
    higher = sorted((i for i in tested if i.reading.startswith("higher")), key=lambda i: -i.difference.mean)
    parts = _phrases(
        ("lower for", _effects(lower)),
        # Numbers for the worse ones only where there is nothing better.
        ("higher for", [item.arm.label for item in higher] if lower else _effects(higher)),
        *_undecided(tested),
    )
    if results.primary not in results.reference.figures:
        return f"{label}, the reference, has no loss there, so nothing is tested against it"
    if not parts:
        return f"no arm shares a seed with {label}, the reference"
    return f"against {label}, the reference, the loss is {', '.join(parts)}"


def _undecided(comparisons: Iterable[Comparison]) -> list[tuple[str, list[str]]]:
    """Return the arms with no claimed difference, by the reason."""
    read = [(item.arm.label, item.reading) for item in comparisons]
    return [
        ("within noise for", [arm for arm, reading in read if reading == "within noise"]),
        ("not separated for", [arm for arm, reading in read if reading.startswith("not separated")]),
        ("not tested for", [arm for arm, reading in read if reading in ("one seed", "no spread")]),
    ]


def _phrases(*groups: tuple[str, list[str]]) -> list[str]:
    """Return the words of each group that has labels: "lower for a and b"."""
    return [f"{words} {listing(labels, NAMED)}" for words, labels in groups if labels]


def _effects(comparisons: Sequence[Comparison]) -> list[str]:
    effects = []
    for item in comparisons:
        size = interval(item.difference.mean, item.difference.half_width, 3, sign=True)
        deviations = item.difference.deviations
        spread = "" if deviations is None else f", {number(deviations, 2)} seed SD"
        effects.append(f"{item.arm.label} ({size} {_short(item.figure)}{spread})")
    return effects


def _short(figure: str) -> str:
    return "bits per byte" if is_in_bits(figure) else "nats"


def _other_protocol(results: Results) -> str:
    """Return which arms change places between the two protocols at the tested length; "" where none do."""
    changed = [item for item in results.both_protocols if item.changes_places]
    if not changed or results.primary is None:
        return ""
    figures = results.primary, counterpart(results.primary)
    tested, untested = (cells.WINDOWS[family(figure)] for figure in figures)
    length = cells.figure_words(results.primary).partition(" at ")[2]
    pairs = [
        f"{' below '.join(_ordered(item))}{'' if item.separated else ' (not separated)'}" for item in changed
    ]
    return (
        f"the two protocols order mean losses differently at {length}: {listing(pairs, NAMED)} in {tested}, "
        f"the other way round in {untested}"
    )


def _ordered(order: BothProtocols) -> tuple[str, str]:
    """Return the arm with the lower mean in the tested figure, and the other one."""
    labels = order.pair.arm.label, order.pair.against.label
    return labels if order.pair.difference.mean < 0 else labels[::-1]


def _context(results: Results) -> Sequence[str]:
    """Return the context gain at the longest length past L, and the usable lengths."""
    longest = longest_gain(results.arms, results.multiples)
    if longest is None:
        return ["no context gain was measured past L"]
    on = "" if results.seeds < 2 else "on this text, " if results.one_text else "each on its own text, "
    gains = f"{on}context gain at {length_words(longest)} {_gains(results, gain(longest))}"
    return (gains, *_usable(results))


def _gains(results: Results, figure: str) -> str:
    known = [(item, estimate) for item in results.arms if (estimate := item.figures.get(figure)) is not None]
    unknown = (
        "without a value for",
        [i.arm.label for i in results.arms if i.rows and figure not in i.figures],
    )
    if all(estimate.half_width is None for _, estimate in known):
        return ", ".join([f"lies {_between(known, sign=True)}", *_phrases(unknown)])
    claimed = {test.arm for test in results.claims if test.figure == figure and test.holds}
    known.sort(key=lambda pair: -pair[1].mean)
    above = [(item, estimate) for item, estimate in known if item.arm.label in claimed and estimate.mean > 0]
    gains = [f"{i.arm.label} ({interval(x.mean, x.half_width, 3, sign=True)})" for i, x in above]
    parts = _phrases(
        ("above 0 for", gains or ["no arm"]),
        ("below 0 for", [i.arm.label for i, x in known if i.arm.label in claimed and x.mean < 0]),
        ("not shown to differ from 0 for", [i.arm.label for i, _ in known if i.arm.label not in claimed]),
        unknown,
    )
    return f"is {', '.join(parts)}"


def _usable(results: Results) -> Sequence[str]:
    """Return both usable lengths: against each arm's own loss at L, and against one loss for all."""
    relative_key, fixed_key = cells.usable_keys(results)
    relative, absolute = _reaches(results, RELATIVE, relative_key), _reaches(results, FIXED, fixed_key)
    return (
        f"usable length by an arm's own loss at L is {relative}" if relative else "",
        f"usable length by one loss ({cells.fixed_limit(results)}) is {absolute}" if absolute else "",
    )


def _reaches(results: Results, kind: str, key: str) -> str:
    """Return one usable length of every arm, the longest first."""
    reach: dict[str, tuple[tuple[float, float], list[str]]] = {}
    unknown = [item.arm.label for item in results.arms if item.rows and not item.by_seed(f"{kind}_multiple")]
    for item in results.arms:
        lengths = item.by_seed(f"{kind}_multiple").values()
        if lengths:
            cell = cells.usable(usable_columns(item.rows, kind), key)
            text = cell.text.replace("≥", "at least").replace("< L", "less than L")
            reach.setdefault(text, ((min(lengths), max(lengths)), []))[1].append(item.arm.label)
    groups = sorted(reach.items(), key=lambda group: group[1][0], reverse=True)
    unit = " tokens" if results.context_length is not None else ""
    parts = [
        f"{text}{'' if i else unit} for {listing(labels, NAMED)}"
        for i, (text, (_, labels)) in enumerate(groups[:NAMED])
    ]
    left = sum(len(labels) for _, (_, labels) in groups[NAMED:])
    parts += [f"others for {left} more"] if left else []
    return ", ".join([*parts, *_phrases(("not taken for", unknown))]) if parts else ""


def fastest(results: Results) -> tuple[str, ...]:
    """Return who reaches the target sooner or later, by name only; a table beside it has the numbers."""
    return _sentences(_of_text(results, _target(results, lambda item: item.arm.label)))


def _target(results: Results, describe: Callable[[ArmFigures], str]) -> str:
    """Return the time to the target, with `describe` of each separated arm; "" without ratios."""
    ratios = [
        (item, item.ratios[TARGET])
        for item in results.arms
        if item is not results.reference and TARGET in item.ratios
    ]
    if not ratios:
        return ""
    known = {results.reference.arm.label, *(item.arm.label for item, _ in ratios)}
    untimed = [item.arm.label for item in results.arms if item.rows and item.arm.label not in known]
    target = f"the loss of {results.reference.arm.label} at 75 % of its budget"
    label = results.reference.arm.label
    claimed = [(item, ratio) for item, ratio in ratios if holds(results.claims, TIME, item.arm.label, label)]
    sooner = [item for item, ratio in claimed if (ratio.high or math.inf) < 1]
    later = [item for item, ratio in claimed if (ratio.low or 0) > 1]
    sooner.sort(key=lambda item: item.ratios[TARGET].high or math.inf)
    left = [item for item, _ in ratios if item not in sooner and item not in later]
    unclear = [_reached(item) for item in left if item.reached[TARGET][0]]
    parts = _phrases(
        ("sooner by", [describe(item) for item in sooner]),
        ("later, if at all, by", [describe(item) for item in later]),
        ("by" if results.seeds < 2 else "not clearly sooner or later by", unclear),
        ("by no run of", [item.arm.label for item in left if not item.reached[TARGET][0]]),
    )
    apart = "; ".join(_phrases(("it is no target of", untimed)))
    return _joined(f"{target} is reached {', '.join(parts)}", apart)


def _timed(item: ArmFigures) -> str:
    """Return an arm, its time over the reference's, and how many of its runs got there."""
    row = {"seeds_finished": len(item.rows), **target_columns(item)}
    return _reached(
        item, f"{cells.over_reference(row, f'tokens_to_target{TARGET}_ratio').text} of its tokens, "
    )


def _reached(item: ArmFigures, time: str = "") -> str:
    """Return an arm, and how many of its runs got there."""
    hits, n = item.reached[TARGET]
    return f"{item.arm.label} ({time}{hits} of {n} run{'' if n == 1 else 's'})"


def at_length(results: Results) -> str:
    """Return which arms differ from the reference in the loss at L; "" without two seeds."""
    figure, reference = loss_at_length(results.reference, results.primary), results.reference.arm.label
    compared = [item for item in results.comparisons if item.figure == figure]
    if results.seeds < 2 or not compared:
        return ""
    known = {reference, *(item.arm.label for item in compared)}
    parts = _phrases(
        ("lower for", [item.arm.label for item in compared if item.reading.startswith("lower")]),
        ("higher for", [item.arm.label for item in compared if item.reading.startswith("higher")]),
        *_undecided(compared),
        ("not compared for", [i.arm.label for i in results.arms if i.rows and i.arm.label not in known]),
    )
    return f"At L the loss {cells.PLACES[family(figure)]}, against {reference}, is {', '.join(parts)}."


def _between(estimates: Iterable[tuple[ArmFigures, Estimate]], sign: bool = False) -> str:
    """Return the range of means with the arms at its ends, or one value where both print alike."""
    ordered = sorted(estimates, key=lambda pair: pair[1].mean)
    means = [signed(mean.mean) if sign else number(mean.mean) for _, mean in ordered]
    labels = [item.arm.label for item, _ in ordered]
    if means[0] == means[-1]:
        return f"at {means[0]} ({listing(labels, NAMED)})"
    return f"between {means[0]} ({labels[0]}) and {means[-1]} ({labels[-1]})"
