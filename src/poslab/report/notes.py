"""What a reader has to know beside the figures: warnings, and how far the statistics reach."""

import math
from dataclasses import dataclass

from poslab.config.text import listing, plain
from poslab.record.losses import TRAINED
from poslab.record.reader import Run
from poslab.report.analysis.rescalings import measured
from poslab.report.analysis.results import Results
from poslab.report.analysis.statistics import EXPLORATORY
from poslab.report.between import differences
from poslab.report.formatting import number, quantity
from poslab.report.rates_words import rates_remarks, rates_warnings

EXPECTED_VALIDATIONS = 100


@dataclass(frozen=True)
class Note:
    text: str
    warning: bool


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
