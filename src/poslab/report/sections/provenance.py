"""The provenance of a report's figures, and how to reproduce them: facts.csv and settings.csv."""

import json
from collections.abc import Callable, Sequence

from poslab.analysis.arms import block
from poslab.analysis.comparisons import origin_of
from poslab.analysis.facts import (
    facts_sheet,
    report_command,
    settings_sheet,
    shown_configuration,
)
from poslab.analysis.results import Results
from poslab.analysis.sheets import Row, Rows, Sheet
from poslab.config.text import counted, listing, plain
from poslab.record.reader import Run
from poslab.report.cells import arm_column
from poslab.report.document import Origin
from poslab.report.formatting import DASH
from poslab.report.tables import Cell, Column, Table


def origin(results: Results, answer: str) -> Origin:
    """Return the provenance of the report. `answer` is written to facts.csv for the list of reports."""
    columns, rows = facts_sheet(results)
    sheets: dict[str, Sheet] = {"facts": (columns, [*rows, {"key": "answer", "value": answer}])}
    settings = settings_sheet(results)
    return Origin(
        report_command(results),
        results.commands,
        tuple(facts(results)),
        None if settings is None else _settings_table(results, settings[0][1:], settings[1]),
        plain(results.first.name, 80),
        json.dumps(shown_configuration(results), indent=2, ensure_ascii=False),
        sheets if settings is None else {**sheets, "settings": settings},
    )


def facts(results: Results) -> list[tuple[str, str]]:
    """Return what must be equal to obtain equal figures, and what the first screen does not say."""
    tuning = [run for run in results.runs if run.tunes]
    seeds = sorted({run.seed for run in results.finished})
    tuned = f"{sum(run.status == 'done' for run in tuning)} of {len(tuning)}"
    return [
        *(("Question", question) for question in results.questions),
        ("Runs finished", f"{len(results.finished)} of {len(results.compared)}"),
        *([("Tuning runs finished", tuned)] if tuning else []),
        ("Model", _all(results, _model)),
        ("Device", _all(results, lambda run: plain(run.manifest.device, 60))),
        ("Code", _all(results, lambda run: plain(run.manifest.code, 80))),
        ("Fingerprint of the data", _all(results, lambda run: plain(run.data_fingerprint, 80))),
        ("Seeds", listing(list(map(str, seeds)), 12)),
        ("Precision", _all(results, lambda run: plain(run.manifest.precision, 40))),
        ("Versions", _all(results, _versions_of)),
        *([("Commit", _all(results, _commit))] if any(map(_commit, results.finished)) else []),
        *([("Continues from", _all(results, _continued))] if any(map(origin_of, results.finished)) else []),
        *([("Hardware", _all(results, _hardware))] if any(map(_hardware, results.finished)) else []),
    ]


def _settings_table(results: Results, keys: Sequence[str], rows: Rows) -> Table:
    """Return the table of the configuration keys in which the arms differ."""
    columns = (arm_column(results), *(Column(key, key, _setting, number=False) for key in keys))
    return Table("Settings in which the arms differ", "", columns, rows, ("settings.csv",))


def _setting(row: Row, key: str) -> Cell:
    value = row.get(key)
    return Cell(DASH if value is None else plain(value, 60) or DASH)


def _all(results: Results, value: Callable[[Run], str]) -> str:
    return "; ".join(dict.fromkeys(filter(None, map(value, results.finished))))  # values contain commas


def _model(run: Run) -> str:
    model = run.config.get("model") or {}
    layers, width, heads = (plain(model.get(key), 12) for key in ("layers", "width", "heads"))
    sizes = counted(layers, "layer"), f"width {width}", counted(heads, "head")
    return ", ".join(filter(None, (*sizes, block(run.config))))


def _versions_of(run: Run) -> str:
    return ", ".join(f"{plain(name, 40)} {plain(version, 40)}" for name, version in run.versions.items())


def _commit(run: Run) -> str:
    """Return the commit of a run's code, and whether the code had uncommitted changes."""
    source = run.manifest.source
    if source is None or source.commit is None:
        return ""
    return f"{plain(source.commit, 64)}{', with changes to src/ or conf/' if source.modified else ''}"


def _continued(run: Run) -> str:
    source = run.manifest.origin
    if source is None:
        return "initial weights"
    steps = "" if source.steps is None else f", after {source.steps:,} steps"
    length = "" if source.context_length is None else f" at L = {source.context_length:,}"
    return f"{plain(source.run, 80)} of study {plain(source.study, 60)}{steps}{length}"


def _hardware(run: Run) -> str:
    """Return a description of a run's machine, or "" if none is on record."""
    machine = run.manifest.hardware
    if machine is None:
        return ""
    cores = "" if machine.cores is None else counted(machine.cores, "core")
    named = [*(machine.gpus or []), machine.processor, cores, machine.system]
    return ", ".join(plain(part, 60) for part in named if part)
