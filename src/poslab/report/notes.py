"""What a reader has to know beside the figures: a summary that claims no more than they do, and warnings."""

import math
from dataclasses import dataclass

from poslab.report.aggregate import ArmFigures
from poslab.report.between import differences
from poslab.report.formatting import interval, listing, multiple, number, percent, plain, quantity
from poslab.report.load import Run
from poslab.report.measures import name
from poslab.report.rates_words import rates_remarks, rates_warnings
from poslab.report.rescaled import measured
from poslab.report.results import Results
from poslab.report.statistics import EXPLORATORY
from poslab.report.sums import TRAINED

EXPECTED_VALIDATIONS = 100


@dataclass(frozen=True)
class Note:
    text: str
    warning: bool


def summary(results: Results, limit: int = 6) -> str:
    """What the losses did from L to the longest length, arm by arm, and what the seeds allow to be said."""
    said = [_described(item, results) for item in results.arms if item.rows]
    more = f"; {len(said) - limit} more in the table" if len(said) > limit else ""
    losses = "; ".join(said[:limit]) + more
    return f"Nats a token, in windows of the given length: {losses}. {_allowed(results, limit)}"


def _described(item: ArmFigures, results: Results) -> str:
    length = item.arm.context_length
    # Where the label or the page's head already says L, it is not repeated.
    at = "L" if results.context_length is not None and item is not results.arms[0] else f"L = {length:,}"
    base = item.mean("loss_1x")
    if base is None:
        return f"{item.arm.label} has no loss at L"
    longest = max((k for k in results.multiples if k > 1 and f"loss_{name(k)}" in item.figures), default=None)
    start = f"{item.arm.label} {number(base, 3)} at {at}"
    if longest is None:
        undefined = any(run.max_length is not None for run in item.arm.finished)
        return f"{start}, {'not defined' if undefined else 'not measured'} past it"
    change = item.mean(f"loss_change_{name(longest)}")
    return (
        f"{start}, {number(item.mean(f'loss_{name(longest)}'), 3)} at {multiple(longest)} ({percent(change)})"
    )


def _allowed(results: Results, limit: int) -> str:
    if results.seeds < 2:
        return "One seed: no interval, no winner claimed."
    few = f"{results.seeds} seeds" + (" (exploratory)" if results.seeds < EXPLORATORY else "")
    tested = [item for item in results.comparisons if item.figure == results.primary]
    if not tested or results.primary is None:
        return f"{few}; no other arm to compare with {results.reference.arm.label}."
    where = multiple(float(results.primary.removeprefix("loss_").removesuffix("x")))
    parts = []
    for verdict in ("lower", "higher"):
        for item in tested:
            if item.verdict == verdict:
                size = interval(item.difference.mean, item.difference.half_width, 3, sign=True)
                parts.append(f"{item.arm.label} {verdict} ({size})")
    if len(parts) > limit:
        parts[limit:] = [f"{len(parts) - limit} more in the table"]
    noise = [item.arm.label for item in tested if item.verdict.startswith("within noise")]
    if noise:
        parts.append(f"{listing(noise)} within noise")
    said = "; ".join(parts) if parts else "nothing is separated"
    return f"{few}, loss at {where} against {results.reference.arm.label}: {said}."


def notes(results: Results) -> tuple[Note, ...]:
    """Warnings first: what does not compare, what is missing; then how far the statistics reach."""
    found = [Note(text, True) for text in _warnings(results)]
    return (*found, *(Note(text, False) for text in _remarks(results)))


def _warnings(results: Results) -> list[str]:
    finished = results.finished
    found = [results.reference_warning] if results.reference_warning else []
    uncounted = [run for run in results.compared if run.status != "done"]
    if uncounted:
        shown = [f"{run.name} ({plain(run.status, 30)})" for run in uncounted]
        found.append(
            f"{len(uncounted)} of {len(results.compared)} runs do not count (see the table of runs): "
            f"{listing(shown)}."
        )
    if not results.reference.rows:
        found.append(
            f"The reference, {results.reference.arm.label}, has no finished run: no targets, no comparisons."
        )
    found += _differences(finished)
    found += rates_warnings(results)
    seeds = {item.arm.label: {row["seed"] for row in item.rows} for item in results.arms if item.rows}
    if len({frozenset(values) for values in seeds.values()}) > 1:
        found.append(
            "The arms do not have the same seeds; differences are taken over the seeds that both have."
        )
    for run in finished:
        if not run.validations:
            found.append(f"{run.name} has no validation losses: no convergence figures.")
        elif ("non_overlapping", 1.0) not in run.segments:
            found.append(f"{run.name} has no loss at L.")
    found += [
        f"{run} has losses that are not finite; they are shown as not defined."
        for run in _not_finite(finished)
    ]
    return found


def _differences(runs: tuple[Run, ...]) -> list[str]:
    """What makes arms hard to compare, where it is not the same in all of them."""
    found = differences(runs)
    scored: dict[tuple[int, str], set[object]] = {}
    for run in _measurements(runs):
        for (protocol, _), segments in run.segments.items():
            tokens = sum([part.tokens for part in segments.values()])
            scored.setdefault((run.context_length, protocol), set()).add((tokens, frozenset(segments)))
    if any(len(entries) > 1 for entries in scored.values()):
        found.append(
            "Not every loss was taken on the same target tokens: lengths or arms differ in what was scored."
        )
    return found


def _not_finite(runs: tuple[Run, ...]) -> list[str]:
    def finite(values: list[float]) -> bool:
        return all(map(math.isfinite, values))

    found = [
        run.name
        for run in _measurements(runs)
        if not finite([part.nll for segments in run.segments.values() for part in segments.values()])
        or not finite([part.nll for part in run.positions.values()])
        or not finite([point.nll for point in run.validations])
    ]
    return list(dict.fromkeys(found))


def _measurements(runs: tuple[Run, ...]) -> list[Run]:
    """Each run as trained and under every other rotation that it was measured under."""
    return [measured(run, rescale) for run in runs for rescale in (TRAINED, *run.rescalings)]


def _remarks(results: Results) -> list[str]:
    found = []
    if results.seeds < 2:
        found.append("One seed an arm: no interval, no winner claimed.")
    elif results.seeds < EXPLORATORY:
        found.append(
            f"{results.seeds} seeds an arm at most: exploratory. Intervals are Student t over seeds, 95 %."
        )
    found += rates_remarks(results)
    fewest = min((len(run.validations) for run in results.finished), default=0)
    if 0 < fewest < EXPECTED_VALIDATIONS:
        found.append(
            f"{fewest} validations a run: convergence is read between them, so tokens to target are coarse."
        )
    if results.targets:
        at = ", ".join(f"{number(t.loss)} ({t.fraction:.0%} of the budget)" for t in results.targets)
        found.append(f"Target losses are those of {results.reference.arm.label}, in nats a token: {at}.")
    if results.aulc_interval:
        start, stop = results.aulc_interval
        found.append(f"AULC is taken from {quantity(start)} to {quantity(stop)} training tokens.")
    return found
