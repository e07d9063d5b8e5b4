"""The answer: the first thing a reader sees, claiming no more than the tests allow."""

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

from poslab.analysis.claims import gain
from poslab.analysis.comparisons import origin_of, tokens_per_parameter
from poslab.analysis.estimates import RELATIVE
from poslab.analysis.learning_rates import scheme_rates
from poslab.analysis.results import Results
from poslab.analysis.sheets import Row, Rows, arms_sheet
from poslab.analysis.statistics import EXPLORATORY, FALSE_ALARMS, grouped
from poslab.config.schema import CAUSAL
from poslab.config.text import listing, plain, rate_text
from poslab.measures import measurements
from poslab.objectives import recorded_objective
from poslab.record.measures import TOLERANCES, family, is_in_bits, multiple, name
from poslab.record.summary import is_pretrained
from poslab.report import cells
from poslab.report.charts import LineChart, PanelChart
from poslab.report.document import Answer
from poslab.report.formatting import DASH, count, number, quantity
from poslab.report.formatting import multiple as length_words
from poslab.report.held_out import HELD_OUT, held_out
from poslab.report.sections import ladder as by_budget
from poslab.report.sections import ladder_sentences, longer, pretrained, texts
from poslab.report.sections.convergence import validation_chart
from poslab.report.sections.cost import unsteady
from poslab.report.sections.extrapolation import tested_chart
from poslab.report.sections.rescalings import in_short
from poslab.report.study_tables import StudyTables
from poslab.report.tables import Cell, Column, Table
from poslab.report.verdict import (
    NAMED,
    at_length,
    compares_at_length,
    context_used,
    convergence,
    left_out,
    on_text,
    sentence,
    without_context,
    without_winner,
)

EARLY = 20  # training tokens per parameter, the optimum of Hoffmann et al. 2022; fewer are early training


def answer(results: Results) -> Answer:
    """Return the sentences, figure and table of the tested comparison."""
    words, trust = tuple(sentences(results)), tuple(belief(results))
    if (led := lead(results)) is not None:
        return Answer(words, trust, *led)
    if results.texts and results.primary is not None:
        return Answer(words, trust, texts.chart(results), texts.table(results))
    if (rungs := results.rungs) is not None:
        return Answer(words, trust, by_budget.lead(results, rungs), by_budget.table(results, rungs))
    chart = validation_chart(results) if results.is_about_learning else tested_chart(results)
    return Answer(words, trust, chart, table(results))


def lead(results: Results) -> tuple[LineChart | PanelChart, Table] | None:
    """Return the first figure and table of a report that tests no loss, such as that of a task."""
    if results.primary is not None:
        return None
    study = StudyTables(results)
    return next(filter(None, (measurement.lead(study) for measurement in measurements())), None)


def sentences(results: Results) -> Iterator[str]:
    """Yield which arm is best at the tested length, which keep their loss up to it, and which is best at L.

    If nothing past L is tested, yield first which arms reach a loss in the fewest tokens.
    """
    if results.texts and results.primary is not None:
        how_many, *differences = texts.sentences(results)
        yield how_many
        yield from longer.findings(results)
        yield from differences
        return
    study = StudyTables(results)
    measured = tuple(chain.from_iterable(item.answer(study) for item in measurements()))
    if results.primary is None and measured:
        yield from measured
        return
    if all(map(is_pretrained, results.finished)):
        yield from pretrained.sentences(results)
        yield from measured
        return
    rungs = results.rungs
    if rungs is not None and not any(n > 1 for figure in rungs.figures for n in rungs.seeds(figure)):
        rungs = None  # no order is claimed from one seed
    if results.primary is None or (rungs is None and not results.ranks):
        yield from longer.findings(results)
        yield from measured
        if not longer.only_controls(results):
            yield sentence(without_winner(results))
            if compares_at_length(results):
                yield at_length(results)
        yield from in_short(results)
        return
    if rungs is not None:  # arms with different budgets are not ranked
        yield from ladder_sentences.findings(rungs)
        if results.tested_multiple > 1:
            yield from filter(None, [context_used([results])])
        yield from measured
        return
    tested = multiple(results.primary)
    faster = [*convergence(results)] if results.is_about_learning else []
    yield from faster
    seeds = sorted({pair.difference.n for pair in results.pairs}) or [results.seeds]
    exploratory = f"{cells.span(seeds)} seeds, so exploratory: " if seeds[0] < EXPLORATORY else ""
    text = "" if faster else f"{on_text(results, results.documents)}, "
    in_bits = " in bits per byte" if is_in_bits(results.primary) else ""
    where = f"at {tested:g} times the training length"
    if tested == 1:
        where = f"at the training length, {cells.PLACES[family(results.primary)]}"
    apart = left_out(results, results.ranks)
    yield sentence(f"{exploratory}{text}{where}{in_bits}, {_lowest(results)}{apart}")
    yield from longer.findings(results)
    if tested > 1:
        past = _within_tolerance(results, tested), context_used([results])
        yield from filter(None, [*past, at_length(results)])
    yield from measured
    yield from in_short(results)


def _lowest(results: Results) -> str:
    """Return which arm has the lowest loss at the tested length, by the ranks."""
    ranks, first = results.ranks, results.leading
    if len(first) == len(ranks):
        return (
            f"{listing(first)} are not separated" if len(first) == 2 else "no arm is separated from another"
        )
    if not first:
        return "no arm is separated from all others"
    if len(first) > 1:
        return f"{first[0]} has the lowest mean loss, not separated from {listing(first[1:], NAMED)}"
    if ranks[first[0]].worst == 1:
        below = [label for label in ranks if label != first[0]]
        than = f"that of {below[0]}" if len(below) == 1 else "any other compared arm's"
        return f"the loss of {first[0]} is lower than {than}"
    return f"no arm is shown to be below {first[0]}, but at least one is not separated from it"


def _within_tolerance(results: Results, tested: float) -> str:
    """Return which arms stay within tolerance of their loss at L in every seed, up to the tested length."""
    unused = without_context(results)
    usable = {
        item.arm.label: min(lengths)
        for item in results.arms
        if any(f"{protocol}_{name(tested)}" in item.figures for protocol in cells.WINDOWS)
        and item not in unused
        and item.mean(gain(1 / 2)) is not None  # otherwise it is unknown whether the arm needs L
        and (lengths := item.by_seed(f"{RELATIVE}_multiple").values())
    }
    if not usable:
        return ""
    reaching = [label for label, longest in usable.items() if longest >= tested]
    allowed = f"stays within {100 * TOLERANCES['']:g} % of its value at L up to {length_words(tested)}"
    names = cells.lone_arm(reaching[0]) if len(reaching) == 1 else listing(reaching, NAMED)
    arms = f"{len(reaching)} of {len(usable)}{': ' if reaching else ''}{names}"
    return f"Of the arms that need a context of L, the loss {allowed} for {arms}."


def table(results: Results) -> Table:
    """Return the table of the answer, sorted by rank: losses at L and at the tested length, and comparisons.

    A single arm has neither a rank nor a comparison.
    """
    protocol, label = cells.loss_family(results), results.reference.arm.label
    readings = {item.arm.label: item.reading for item in results.tested}

    def against(row: Row, key: str) -> Cell:
        cell, reading = difference(results, row), readings.get(str(row["arm"]), "")
        if reading == "within noise":
            return replace(cell, text=f"{cell.text} (noise)")
        return replace(cell, text=f"{cell.text}, {reading}") if reading.startswith("not sep") else cell

    places = "1 is the lowest loss; only arms that are separated limit an arm's rank"
    over = f"tokens until the loss of {label} at 75 % of its budget, divided by those of {label}"
    paired = (
        f"the difference from {label}, paired by seed, with its 95 % interval over {cells.chance(results)}; "
        "noise: the interval includes 0; not separated: p with Holm's correction is "
        f"{FALSE_ALARMS:g} or more"
    )
    losses = [cells.loss_column(protocol, k) for k in dict.fromkeys((1.0, results.tested_multiple))]
    columns = [cells.arm_column(results), *losses]
    if len(results.arms) > 1:
        if results.ranks:
            columns.insert(1, Column("rank", "Rank", cells.rank, number=False, about=places))
        if results.is_about_learning and results.targets:
            title = "Tokens to target"
            columns.append(Column("tokens_to_target_ratio", title, cells.over_reference, about=over))
        columns.append(Column("difference", f"Against {label}", against, about=paired))
    return Table("Answer", "", tuple(columns), ranked_rows(results), ("arms.csv", "differences.csv"))


def difference(results: Results, row: Row) -> Cell:
    """Return the difference of a row's arm from the reference in the tested loss."""
    if row["reference"] is True:
        return Cell("reference")
    for item in results.tested:
        if item.arm.label == row["arm"]:
            return cells.difference(vars(item.difference))
    return Cell(DASH)


def ranked_rows(results: Results) -> Rows:
    """Return the rows of arms.csv by rank, then by mean, with unranked rows last."""
    key = f"{results.primary}_mean"

    def order(row: Row) -> tuple[float, ...]:
        values = (row.get("rank_best"), row.get("rank_worst"), row.get(key))
        return tuple(value if isinstance(value, int | float) else math.inf for value in values)

    return sorted(arms_sheet(results)[1], key=order)


def belief(results: Results) -> list[tuple[str, str]]:
    """Return labels and short values on how far to believe the answer."""
    finished = results.finished
    trained = [run for run in finished if not is_pretrained(run)]
    counts = sorted(len(item.rows) for item in results.arms if item.rows)
    tested = (
        "" if results.primary is None else f"{cells.figure_words(results.primary)}, with Holm's correction"
    )
    is_tested = any(test.figure == results.primary for test in results.claims)
    objectives = (recorded_objective(run.config) for run in finished)
    words = ("unknown here" if item is None else plain(item.predicts, 60) for item in objectives)
    of_another = any(run.config.get("objective", CAUSAL) != CAUSAL for run in finished)
    text = cells.distinct((plain(run.data_name, 40) for run in finished), NAMED)
    parameters = sorted(run.manifest.parameters for run in finished if run.manifest.parameters)
    size = f"{cells.span(list(map(quantity, parameters)))} parameters"
    budget = cells.span(list(map(quantity, sorted(run.budget for run in trained))))
    seen = sorted(value for run in finished if (value := tokens_per_parameter(run)) is not None)
    before = ", including earlier training" if any(map(origin_of, finished)) else ""
    ratio = f" ({cells.span([number(value, 2) for value in seen])} per parameter{before})" if seen else ""
    is_early = seen and round(seen[0]) < EARLY and len(results.arms) > 1 and results.primary is not None
    where = " in some arms" if seen and round(seen[-1]) >= EARLY else ""
    fewer = f"fewer than {EARLY} tokens per parameter{where}"
    early = f"{fewer}, so differences at L may shrink or reverse with more training"
    known = (
        ("Seeds per arm", f"{cells.span(counts)}{'' if counts[-1] > 1 else ': no interval, no winner'}"),
        ("Tested", tested if is_tested else ""),
        ("Predicted", cells.distinct(words, NAMED) if of_another else ""),
        ("Text", text if any(run.has_text for run in finished) else ""),
        (HELD_OUT, "; ".join(held_out(finished))),
        ("Learning rate", _rate(results) if trained else ""),
        ("Model and budget", f"{size}, {budget} tokens{ratio}" if trained else ""),
        ("Models", "" if trained else f"{size}, trained elsewhere"),
        ("Early training", early if is_early else ""),
        ("L", f"{cells.span([count(n) for n in sorted(run.context_length for run in finished)])} tokens"),
        ("Speed", "not compared: uneven, as when other work is running" if unsteady(results) else ""),
    )
    return [(label, value) for label, value in known if value]


def _rate(results: Results) -> str:
    if any(tuning.arm is not None for tuning in results.tunings):
        return "chosen by tuning"
    trained = [run for run in results.finished if not is_pretrained(run)]
    rates = dict.fromkeys(run.config["trainer"].get("learning_rate") for run in trained)
    texts = [rate_text(rate) if isinstance(rate, float) else plain(rate, 20) for rate in rates]
    parts = results.texts or (results,)  # with several texts, an arm has one label on all of them
    factors = scheme_rates(item.arm for part in parts for item in part.arms)
    times = grouped((f"{rate:g}", plain(label, 40)) for label, rate in factors.items())
    scaled = [f"; times {rate} for scheme parameters of {listing(of, NAMED)}" for rate, of in times.items()]
    return f"{listing(texts, NAMED)}, not tuned{''.join(scaled)}"
