"""What a reader must know besides the figures: warnings, and the limits of the statistics."""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from poslab.analysis.comparisons import scored_by
from poslab.analysis.rescalings import measured
from poslab.analysis.results import Results
from poslab.analysis.statistics import FALSE_ALARMS, grouped
from poslab.config.text import counted, listing, plain, rate_text
from poslab.record.facts import recipe
from poslab.record.losses import TRAINED
from poslab.record.reader import Rates, Run
from poslab.record.summary import is_pretrained
from poslab.report.cells import figure_words
from poslab.report.formatting import number, quantity

EXPECTED_VALIDATIONS = 100
EDGE = "at the grid's edge: widen it"  # said of a chosen rate
RATE_NAMES = {"learning_rate": "learning rate", "scheme_rate": "scheme rate"}


def rates_text(rates: Rates) -> str:
    """Return 0.002, or 0.002 x 3 if the scheme's own parameters train at three times that rate."""
    of_scheme = "" if rates.scheme_rate == 1 else f" x {rates.scheme_rate:g}"
    return f"{rate_text(rates.learning_rate)}{of_scheme}"


def warnings_of(results: Results) -> Iterator[str]:
    """Yield reasons why the answer may be wrong: missing runs, and runs that are not comparable.

    For a study on several texts, the warnings that concern a single text come last.
    """
    whole = list(_warnings_of(results))
    yield from whole
    known = {run.name for text in results.texts for run in text.finished}
    finished = [item for item in results.arms if item.arm.finished]
    apart = [item.arm.label for item in finished if item.arm.finished[0].name not in known]
    if results.texts and apart:
        yield f"Not compared, as no reference or no other arm finished on the same text: {listing(apart)}."
    base = {scored_by(run) for run in results.reference.arm.finished}
    if differing := [
        item.arm.label
        for item in finished
        if base and any(run.segments and scored_by(run) not in base for run in item.arm.finished)
    ]:
        yield (
            f"Trained for another objective than {results.reference.arm.label}: {listing(differing)}. Losses "
            "of two objectives are not comparable, even if a figure shows both."
        )
    for text in results.texts:
        yield from (f"{text.text}: {warning}" for warning in _warnings_of(text) if warning not in whole)


def _warnings_of(results: Results) -> Iterator[str]:
    """Yield the warnings that concern all runs together."""
    finished = results.finished
    if results.reference_warning is not None:
        yield results.reference_warning
    uncounted = [run for run in results.compared if run.status != "done"]
    if uncounted:
        named = [f"{run.name} ({plain(run.status, 30)})" for run in uncounted]
        verb = "does" if len(uncounted) == 1 else "do"
        yield f"{len(uncounted)} of {len(results.compared)} runs {verb} not count: {listing(named)}."
    if not results.reference.rows:
        label = results.reference.arm.label
        yield f"The reference, {label}, has no finished run, so there are no targets and no comparisons."
    if (rungs := None if results.texts else results.rungs) is not None:
        compared = {item.arm.label for rung in rungs.rungs for item in rung.arms.values()}
        if apart := [item.arm.label for item in results.arms if item.rows and item.arm.label not in compared]:
            lacking = f"No other arm, or no {rungs.reference}, is comparable at the same size and budget"
            yield f"{lacking}, so these arms are in no order and no trend: {listing(apart)}."
        yield (
            "Figures that compare all arms at once, such as tokens to target, compare them with "
            f"{results.reference.arm.label}, also across sizes and budgets."
        )
    yield from _differences(finished, bool(results.texts), rungs is not None)
    yield from _untrained(finished)
    yield from _far_from_normal(results)
    yield from _rate_warnings(results)
    if len({frozenset(row["seed"] for row in item.rows) for item in results.arms if item.rows}) > 1:
        yield "The arms have different seeds, so differences are taken over shared seeds."
    for run in finished:
        steps, planned = run.steps
        if steps < planned:
            yield f"{run.name} was stopped by one of its callbacks at step {steps:,} of {planned:,}."
    unfit = [run.name for run in _measurements(finished) if not all(map(math.isfinite, _losses(run)))]
    left_out = "has losses that are not finite; means and tests of these losses leave it out"
    yield from (f"{run} {left_out}." for run in dict.fromkeys(unfit))


def _differences(runs: tuple[Run, ...], across_texts: bool, across_budgets: bool) -> Iterator[str]:
    """Yield warnings about settings that differ between runs and make arms hard to compare.

    With `across_texts`, runs are compared text by text, so their texts may differ. With `across_budgets`,
    as on a ladder, they are compared budget by budget.
    """
    tasks = grouped(("" if run.has_text else plain(run.objective, 60), run) for run in runs)
    if "" in tasks and (named := [task for task in tasks if task]):
        texts = listing(list(dict.fromkeys(plain(run.data_name, 60) for run in tasks[""])))
        yield (
            f"The study has both tasks ({listing(named)}) and text ({texts}): no difference and no target is "
            "taken across them; give each its own study (study=NAME)."
        )
    for question in QUESTIONS[across_texts:]:
        if question is BUDGETS and across_budgets:
            continue
        for task, alike in (tasks if question.by_task and len(tasks) > 1 else {"": list(runs)}).items():
            if text := _differing(question, alike):
                yield f"{task}: {text}" if task else text
    yield from filter(None, _parts(runs))
    scored: dict[tuple[int, str], set[object]] = {}
    for run in _measurements(runs):
        for (protocol, _), segments in run.segments.items():
            tokens = sum([part.tokens for part in segments.values()])
            scored.setdefault((run.context_length, protocol), set()).add((tokens, frozenset(segments)))
    if not across_texts and any(len(entries) > 1 for entries in scored.values()):
        yield "The scored target tokens differ between lengths or arms."


def _untrained(runs: tuple[Run, ...]) -> Iterator[str]:
    """Yield warnings about schemes measured at distances for which their parameters were not trained."""
    by_length = grouped(
        ((run.context_length, first), run.pos)
        for run in runs
        if (first := run.manifest.untrained_from) is not None
        and first < max((multiple for _, multiple in run.segments), default=1.0) * run.context_length
    )
    for (length, first), schemes in sorted(by_length.items()):
        yield (
            f"{listing(list(dict.fromkeys(schemes)))}: windows of {length} tokens train no parameter for "
            f"distances of {first} tokens or more, so losses past L depend on parameters with their initial "
            "values. Choose a table that ends within L."
        )


def _far_from_normal(results: Results) -> Iterator[str]:
    """Warn of differences too far from normal for a t interval; by chance in at most 5 % of studies."""
    values = [(item.arm.label, p) for item in results.comparisons if (p := item.normality_p) is not None]
    uneven = [label for label, p in values if p < FALSE_ALARMS / len(values)]
    if uneven and results.primary is not None:
        yield (
            f"The differences of {listing(uneven)} from {results.reference.arm.label} in the "
            f"{figure_words(results.primary)} are far from normal (Shapiro-Wilk), so their t intervals are "
            "less reliable."
        )


def _losses(run: Run) -> list[float]:
    """Return all recorded sums of losses."""
    segments = [part.nll for parts in run.segments.values() for part in parts.values()]
    positions = [part.nll for part in run.positions.values()]
    return [*segments, *positions, *(point.nll for point in run.validations)]


def _measurements(runs: tuple[Run, ...]) -> list[Run]:
    """Return each run as trained, and under every rotation it was measured with."""
    return [measured(run, rescale) for run in runs for rescale in (TRAINED, *run.rescalings)]


def remarks_on(results: Results) -> Iterator[str]:
    """Yield remarks on the error rate of the tests and on the resolution and limits of the figures."""
    if results.claims:
        files = "claims_*.csv" if results.texts else "claims.csv"
        yield (
            f"The tests in {files} have Holm's correction: at most 5 % of studies make any false claim. "
            "Other intervals and p values in this report are not covered by this correction."
        )
    if not results.has_losses:
        return
    fewest = min((len(run.validations) for run in results.finished), default=0)
    if 0 < fewest < EXPECTED_VALIDATIONS:
        yield f"{counted(fewest, 'validation')} per run, so tokens to target are coarse."
    for part in results.texts or (results,):
        if part.targets:
            at = ", ".join(f"{number(t.loss)} ({100 * t.fraction:g} % of the budget)" for t in part.targets)
            text = f"{part.text}: " if results.texts else ""
            targets = f"The target losses are medians over the seeds of {part.reference.arm.label}"
            yield f"{text}{targets}, in nats per token: {at}."
    if results.aulc_interval:
        start, stop = results.aulc_interval
        yield f"AULC covers {quantity(start)} to {quantity(stop)} training tokens."


@dataclass(frozen=True)
class Question:
    """A property that all runs should share, and the sentence for when they do not."""

    value: Callable[[Run], object]
    words: str  # {} stands for the values
    but: str = ""  # the consequence of the difference
    by_task: bool = False  # whether the property may differ between tasks


BUDGETS = Question(
    lambda run: "unknown" if is_pretrained(run) else run.budget,
    "The budgets differ ({} training tokens)",
    ", so the arms also differ in how long they were trained",
    by_task=True,
)
QUESTIONS = (  # the question on the text comes first
    Question(
        lambda run: run.data_fingerprint,
        "The data differ (fingerprints {})",
        ", so no difference in nats per token and no target is taken across them",
        by_task=True,
    ),
    Question(lambda run: recipe(run.manifest.code), "The runs were trained by different code ({})"),
    Question(
        lambda run: recipe(run.manifest.code_evaluation),
        "The runs were evaluated by different code ({})",
        ": repeat their studies' commands to evaluate them again",
    ),
    Question(
        lambda run: run.context_length,
        "The training lengths differ (L = {})",
        ": lengths are shown as multiples of L, and losses at the same multiple of different L are not "
        "comparable; run one study for each L (study=NAME) to compare its arms",
        by_task=True,
    ),
    BUDGETS,
    Question(
        lambda run: (run.manifest.origin and run.manifest.origin.steps) or 0,
        "The runs began after different amounts of training ({} optimizer steps)",
        ": budgets, curves and times to a target do not count those steps",
    ),
    Question(
        lambda run: run.vocabulary,
        "The vocabularies differ ({} tokens, including the document separator)",
        ": compare bits per byte (primary=sliding_bits_per_byte_1x or farther), not nats per token",
        by_task=True,
    ),
    Question(
        lambda run: run.manifest.device, "The devices differ ({})", ", so speeds and times are not comparable"
    ),
    Question(lambda run: run.manifest.precision, "The precisions differ ({})"),
)


def _differing(question: Question, runs: Sequence[Run]) -> str | None:
    """Return the sentence for a question with all values if the runs differ on it, otherwise None."""
    values = list(dict.fromkeys(map(question.value, runs)))
    if len(values) < 2:
        return None
    texts = [f"{value:,}" if isinstance(value, int) else plain(value, 60) for value in values]
    return f"{question.words.replace('{}', listing(texts))}{question.but}."


def _parts(runs: Sequence[Run]) -> Iterator[str | None]:
    """Warn of schemes and attentions that differ in their own code, if the shared code is the same."""
    if len({run.manifest.code for run in runs}) > 1:
        return  # another warning already covers this
    # An objective has its own code.
    wholes = ((f"{plain(run.pos, 80)} / {plain(run.attention, 80)}", run.objective) for run in runs)
    for (whole, _), members in grouped(zip(wholes, runs, strict=True)).items():
        words = f"The runs of {whole} were trained by different code ({{}})"
        yield _differing(Question(lambda run: run.manifest.code_parts, words), members)


def _rate_warnings(results: Results) -> Iterator[str]:
    """Yield warnings about how rates were chosen, and about chosen rates that were not used."""
    for tuning in results.tunings:
        if tuning.arm is None:
            yield f"{tuning.label} is not compared, though its learning rate was tuned."
        if tuning.choice is None:
            yield f"No learning rate of {tuning.label} has a loss for every seed, so none is chosen."
        elif tuning.unchosen:
            used, chosen = listing(list(map(rates_text, tuning.unchosen))), rates_text(tuning.choice.rates)
            yield f"{tuning.label} is compared at learning rate {used}, but its tuning chose {chosen}."
        unlike = [name for name, values in _conditions(tuning.runs).items() if len(values) > 1]
        if unlike:
            yield f"Tuning runs of {tuning.label} differ in {listing(unlike)}: losses are not comparable."
    for kind, words in RATE_NAMES.items():
        if chosen := listing(
            [
                f"{tuning.label} ({rate_text(getattr(tuning.choice.rates, kind))})"
                for tuning in results.tunings
                if tuning.choice is not None and kind in tuning.choice.edges
            ]
        ):
            yield f"The chosen {words} is at the edge of the grid for {chosen}: widen the grid."
    tuned = {tuning.arm for tuning in results.tunings}
    if untuned := [item.arm.label for i, item in enumerate(results.arms) if tuned and i not in tuned]:
        yield f"The learning rate was not tuned for {listing(untuned)}."
    compared = {(run.study, run.seed) for run in results.finished}
    of_tuning = {(run.study, run.seed) for tuning in results.tunings for run in tuning.runs}
    if seeds := listing([str(seed) for seed in sorted({seed for _, seed in compared & of_tuning})]):
        yield f"Tuning and comparison share seeds ({seeds}), so the rates were fitted to the compared runs."


def _conditions(runs: Sequence[Run]) -> dict[str, set[str]]:
    return {
        "data": {f"{run.data_fingerprint} {run.vocabulary}" for run in runs},
        "code": {f"{run.manifest.code} {run.manifest.code_parts}" for run in runs},
        "validation": {json.dumps(run.config.get("evaluate"), sort_keys=True, default=str) for run in runs},
    }
