"""Where a report's figures come from, and how to make them again."""

import json
import shlex
from collections.abc import Callable, Mapping
from typing import Any

from poslab.config.text import listing, plain
from poslab.record.reader import Run
from poslab.report.analysis.results import Results
from poslab.report.formatting import count, quantity
from poslab.report.tables import Cell, Column, Table

SOURCES = ("facts.csv", "method.csv")  # with what the words say of the study and of the method


def facts(results: Results) -> list[tuple[str, str]]:
    """What the finished runs have in common or differ in, for the head of the report."""
    finished = len(results.finished)
    tuning = [run for run in results.runs if run.tunes]
    tuned = f"{sum(run.status == 'done' for run in tuning)} of {len(tuning)}" if tuning else ""
    return [
        *(("Question", question) for question in results.questions),
        ("Arms", str(len(results.arms))),
        ("Runs finished", f"{finished} of {len(results.compared)}"),
        *([("Tuning runs finished", tuned)] if tuning else []),
        ("Training length L", _all(results, lambda run: f"{count(run.context_length)} tokens")),
        ("Budget", _all(results, lambda run: f"{quantity(run.budget)} tokens")),
        ("Model", _all(results, _model)),
        ("Parameters", _all(results, lambda run: quantity(run.manifest.parameters))),
        ("Data", _all(results, lambda run: plain(run.data_name, 60))),
        ("Device", _all(results, lambda run: plain(run.manifest.device, 60))),
    ]


def origins(results: Results) -> list[tuple[str, str]]:
    """What has to be the same for the same figures to come out."""
    return [
        ("Code", _all(results, lambda run: plain(run.manifest.code, 80))),
        ("Data", _all(results, lambda run: plain(run.data_fingerprint, 80))),
        ("Seeds", listing([str(seed) for seed in sorted({run.seed for run in results.finished})], 12)),
        ("Precision", _all(results, lambda run: plain(run.manifest.precision, 40))),
        ("Versions", _all(results, _versions)),
    ]


def report_command(results: Results) -> str:
    """The command line that makes this report again from the records."""
    options = results.asked.option, f"reference={results.reference.arm.label}"
    return f"python report.py {' '.join(map(shlex.quote, options))}"


def shown_run(results: Results) -> Run:
    """The run whose configuration stands for the study: the reference's, where that finished."""
    return (results.reference.arm.finished or results.finished)[0]


def configuration(results: Results) -> str:
    """The whole configuration of that run as JSON."""
    return json.dumps(shown_configuration(results), indent=2, ensure_ascii=False)


def shown_configuration(results: Results) -> Any:
    """The whole configuration of that run, with no path of the machine."""
    return _without_paths(shown_run(results).config)


def differing(results: Results) -> list[str]:
    """The configuration keys in which the arms differ."""
    return sorted({key for item in results.arms for key in item.arm.differing})


def settings_table(results: Results) -> Table | None:
    """The configuration keys in which the arms differ, or None where there is but one arm."""
    keys = differing(results)
    if not keys:
        return None
    rows = tuple(
        (
            Cell(item.arm.label, arm=i),
            *(Cell(_setting(item.arm.differing.get(key))) for key in keys),
        )
        for i, item in enumerate(results.arms)
    )
    columns = (Column("Arm", number=False), *(Column(key, number=False) for key in keys))
    return Table("settings", "What the arms differ in", "", columns, rows, "settings.csv")


def _setting(value: Any) -> str:
    return "–" if value is None else plain(value, 60)


def _without_paths(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {plain(key, 60): _without_paths(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_paths(item) for item in value]
    return plain(value) if isinstance(value, str) else value


def _all(results: Results, value: Callable[[Run], str]) -> str:
    return listing(list(dict.fromkeys(value(run) for run in results.finished)), 4)


def _model(run: Run) -> str:
    model = run.config.get("model") or {}
    layers, width, heads = (plain(model.get(key), 12) for key in ("layers", "width", "heads"))
    return f"{layers} layers, width {width}, {heads} heads"


def _versions(run: Run) -> str:
    return ", ".join(f"{plain(name, 40)} {plain(version, 40)}" for name, version in run.versions.items())
