"""Where a report's figures come from, and how to make them again: facts.csv, settings.csv and method.csv."""

import json
from collections.abc import Callable

from poslab.analysis.claims import Group
from poslab.analysis.curves import STEADY
from poslab.analysis.estimates import TARGETS
from poslab.analysis.facts import (
    differing,
    facts_sheet,
    origin_of,
    report_command,
    settings_sheet,
    shown_configuration,
    shown_run,
)
from poslab.analysis.protocols import LONGEST_TESTED
from poslab.analysis.results import Results
from poslab.analysis.sheets import Row, Sheet
from poslab.analysis.spread import FEWEST_SEGMENTS
from poslab.analysis.statistics import (
    CONFIDENCE,
    CONFIDENCE_NEAR_BUDGET,
    CONFIDENCE_OF_BOUND,
    EXPLORATORY,
    FALSE_ALARMS,
)
from poslab.config.text import counted, listing, plain
from poslab.measures.retrieval import BEFORE_QUESTION, EVERY_ANSWER, LEARNED, SYMBOLS, WINDOW_START
from poslab.record import measures
from poslab.record.measures import Value
from poslab.record.reader import Run
from poslab.report.cells import SMALLEST_P, arm_column
from poslab.report.charts import SCALE_FROM
from poslab.report.document import Origin
from poslab.report.formatting import DASH, count, quantity
from poslab.report.sections.answer import EARLY, sentences
from poslab.report.sections.rescalings import CEILING, START
from poslab.report.sections.schemes import AN_OCTAVE, BOUND_OVER, BOUND_SOURCE, COUNTED_FROM, DEPTH
from poslab.report.tables import Cell, Column, Table
from poslab.report.verdict import NAMED
from poslab.report.warnings import EXPECTED_VALIDATIONS

OF_ALL_ALARMS = "of 5: of the verdict's false alarms"
SOURCES = ("facts.csv", "method.csv")  # with what the words say of the study and of the method


def origin(results: Results) -> Origin:
    """How to make the report again, from what, and under which configuration."""
    columns, rows = facts_sheet(results)
    said: Row = {"key": "answer", "value": next(sentences(results))}  # for the list of reports
    sheets = {"facts": (columns, [*rows, dict(said)]), "method": method_sheet()}
    settings = settings_sheet(results)
    return Origin(
        report_command(results),
        results.commands,
        tuple(facts(results)),
        tuple(_origins(results)),
        settings_table(results),
        plain(shown_run(results).name, 80),
        json.dumps(shown_configuration(results), indent=2, ensure_ascii=False),
        SOURCES,
        sheets if settings is None else {**sheets, "settings": settings},
    )


def facts(results: Results) -> list[tuple[str, str]]:
    """What the finished runs have in common or differ in, for the head of the report."""
    tuning = [run for run in results.runs if run.tunes]
    tuned = f"{sum(run.status == 'done' for run in tuning)} of {len(tuning)}"
    return [
        *(("Question", question) for question in results.questions),
        ("Arms", str(len(results.arms))),
        ("Runs finished", f"{len(results.finished)} of {len(results.compared)}"),
        *([("Tuning runs finished", tuned)] if tuning else []),
        ("Training length L", _all(results, lambda run: f"{count(run.context_length)} tokens")),
        ("Budget", _all(results, lambda run: f"{quantity(run.budget)} tokens")),
        ("Model", _all(results, _model)),
        ("Parameters", _all(results, lambda run: quantity(run.manifest.parameters))),
        ("Data", _all(results, lambda run: plain(run.data_name, 60))),
        ("Device", _all(results, lambda run: plain(run.manifest.device, 60))),
    ]


def _origins(results: Results) -> list[tuple[str, str]]:
    """What has to be the same for the same figures to come out."""
    seeds = sorted({run.seed for run in results.finished})
    return [
        ("Code", _all(results, lambda run: plain(run.manifest.code, 80))),
        ("Data", _all(results, lambda run: plain(run.data_fingerprint, 80))),
        ("Seeds", listing(list(map(str, seeds)), 12)),
        ("Precision", _all(results, lambda run: plain(run.manifest.precision, 40))),
        ("Versions", _all(results, _versions_of)),
        *([("Commit", listing(commits, 4))] if (commits := _commits(results)) else []),
        *([("Goes on from", _all(results, _goes_on_from))] if any(map(origin_of, results.finished)) else []),
        *([("Hardware", _all(results, _hardware))] if any(map(_hardware, results.finished)) else []),
    ]


def settings_table(results: Results) -> Table | None:
    """The configuration keys in which the arms differ, or None where there is but one arm."""
    keys = differing(results)
    records: list[Row] = [
        {"arm": item.arm.label, **{f"setting {key}": value for key, value in item.arm.differing.items()}}
        for item in results.arms
    ]
    columns = (arm_column(results), *(Column(f"setting {key}", key, _setting, number=False) for key in keys))
    return Table("What the arms differ in", "", columns, records, ("settings.csv",)) if keys else None


def _setting(row: Row, key: str) -> Cell:
    value = row.get(key)
    return Cell(DASH if value is None else plain(value, 60) or DASH)


def _all(results: Results, value: Callable[[Run], str]) -> str:
    return listing(list(dict.fromkeys(value(run) for run in results.finished)), 4)


def _model(run: Run) -> str:
    model = run.config.get("model") or {}
    layers, width, heads = (plain(model.get(key), 12) for key in ("layers", "width", "heads"))
    return f"{layers} layers, width {width}, {heads} heads"


def _versions_of(run: Run) -> str:
    return ", ".join(f"{plain(name, 40)} {plain(version, 40)}" for name, version in run.versions.items())


def _commits(results: Results) -> list[str]:
    """The commits that the runs were made from, each with whether the code had been changed since."""
    modified: dict[str, list[bool]] = {}
    for run in results.finished:
        source = run.manifest.source
        if source is not None and source.commit is not None:
            modified.setdefault(plain(source.commit, 64), []).append(bool(source.modified))
    shown = []
    for commit, changed in modified.items():
        which = "" if all(changed) else "some runs "
        shown.append(f"{commit}, {which}with changes to src/ or conf/" if any(changed) else commit)
    return shown


def _goes_on_from(run: Run) -> str:
    source = run.manifest.origin
    if source is None:
        return "drawn weights"
    steps = "" if source.steps is None else f", after {source.steps:,} steps"
    length = "" if source.context_length is None else f" at L = {source.context_length:,}"
    return f"{plain(source.run, 80)} of study {plain(source.study, 60)}{steps}{length}"


def _hardware(run: Run) -> str:
    """The machine that a run was made on; empty where none is on record."""
    machine = run.manifest.hardware
    if machine is None:
        return ""
    cores = "" if machine.cores is None else counted(machine.cores, "core")
    named = [*(machine.gpus or []), machine.processor, cores, machine.system]
    return ", ".join(plain(each, 60) for each in named if each)


def method_sheet() -> Sheet:
    """method.csv: the numbers that the report's words speak of and no study sets, from where they are set.

    A row a constant; the same name again where there are several values.
    """
    columns = ["name", "value", "meaning"]
    constants: list[tuple[str, Value, str]] = [
        ("confidence", CONFIDENCE, "of every Student-t interval over seeds"),
        ("confidence_of_bound", CONFIDENCE_OF_BOUND, "of a bound on time to target where runs were cut off"),
        (
            "confidence_near_budget",
            CONFIDENCE_NEAR_BUDGET,
            "of the interval of one more seed: decides whether times are near the budget, and is shown there",
        ),
        ("false_alarms", FALSE_ALARMS, "p with Holm's correction under which the verdict claims something"),
        *((f"share_{one.name.lower()}", one.share, f"{OF_ALL_ALARMS}, {one.label}") for one in Group),
        ("fewest_segments", FEWEST_SEGMENTS, "that a standard error over text takes"),
        ("early_below", EARLY, "training tokens a parameter; with fewer, the report calls training early"),
        ("smallest_p", SMALLEST_P, "a smaller p is shown as less than this"),
        ("exploratory_below", EXPLORATORY, "seeds; fewer are called exploratory"),
        ("primary_multiple", LONGEST_TESTED, "of L: the longest whose loss is tested by default"),
        *(("multiple", k, "of L: always a column") for k in measures.MULTIPLES),
        ("stride", measures.STRIDE, "of L: how far sliding windows move, and how much of each is scored"),
        ("bins_an_octave", measures.BINS_AN_OCTAVE, "of loss by position"),
        ("plateau_from", measures.PLATEAU_FROM, "of L: where the plateau of the loss by position begins"),
        *(
            (f"tolerance{suffix}", part, "over the loss at L (usable length) or the plateau (failure, rise)")
            for suffix, part in measures.TOLERANCES.items()
        ),
        *(("target_fraction", part, "of the reference's budget: its loss is a target") for part in TARGETS),
        ("confirmations", measures.CONFIRMATIONS, "validations in a row at or below a target that reach it"),
        ("expected_validations", EXPECTED_VALIDATIONS, "a run; with fewer, a note says so"),
        (
            "steady_speed",
            STEADY,
            "of a run's fast stretches: if slow ones have less, speeds are not compared",
        ),
        ("named", NAMED, "arms in one list of the verdict; it counts the others"),
        ("position_panels_from", START, "of L: where loss by position under other rotations begins"),
        ("ceiling", CEILING, "of the highest plateau: where loss by position under other rotations ends"),
        *(("symbols", n, f"that an answer of {task} is drawn from") for task, n in SYMBOLS.items()),
        ("learned", LEARNED, "of all samples at L exact: with less, an arm has not learned the task"),
        ("depth_of_start", WINDOW_START, "of a retrieval probe: the start of the window"),
        ("depth_before_question", BEFORE_QUESTION, "of a retrieval probe: right before the question"),
        ("scale_from", SCALE_FROM, "where the scales of shaded tables and of tokens to target begin"),
        ("retrieval_scale_to", EVERY_ANSWER, "a share: where the scale of retrieval ends"),
        ("bias_depth", DEPTH, "nats under its highest bias where a head's line ends"),
        ("bias_points_an_octave", AN_OCTAVE, "of a line that are drawn, where there are more"),
        ("bound_over", BOUND_OVER, "tokens: the distance whose bound of decay the others are divided by"),
        ("bound_source", BOUND_SOURCE, "defines the upper bound of decay"),
        ("counted_from", COUNTED_FROM, "the number of the first layer, head and pair"),
    ]
    return columns, [dict(zip(columns, row, strict=True)) for row in constants]
