"""facts.csv and settings.csv: what the report says of the study and of no arm alone, as raw values."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from poslab.config.text import plain
from poslab.record.measures import Value
from poslab.record.reader import Run
from poslab.report import provenance
from poslab.report.analysis.results import Results
from poslab.report.performance import problems
from poslab.report.sheets import Rows

COLUMNS = ["key", "value"]
OF_RUNS: Mapping[str, Callable[[Run], object]] = {
    "context_length": lambda run: run.context_length,
    "budget": lambda run: run.budget,
    **{
        key: lambda run, key=key: (run.config.get("model") or {}).get(key)  # type: ignore[misc]
        for key in ("layers", "width", "heads")
    },
    "learning_rate": lambda run: run.config["trainer"].get("learning_rate"),
    "parameters": lambda run: run.manifest.parameters,
    "data": lambda run: run.data_name,
    "data_fingerprint": lambda run: run.data_fingerprint,
    "vocabulary": lambda run: run.vocabulary,
    "device": lambda run: run.manifest.device,
    "precision": lambda run: run.manifest.precision,
    "code": lambda run: run.manifest.code,
}


def facts(results: Results) -> tuple[list[str], Rows]:
    """facts.csv: a row a value; the same key again where the finished runs differ."""
    found: list[tuple[str, object]] = [
        ("study", results.study),
        *(("question", question) for question in results.questions),
        ("reference", results.reference.arm.label),
        *_counts(results),
        *((key, value) for key, of in OF_RUNS.items() for value in _different(map(of, results.finished))),
        *(("seed", seed) for seed in sorted({run.seed for run in results.finished})),
        *(("multiple", k) for k in results.multiples),
        ("primary", results.primary),
        *_convergence(results),
        *_versions(results),
        *(("command", line) for line in results.commands),
        ("report_command", provenance.report_command(results)),
        ("configuration_of", provenance.shown_run(results).name),
        *(
            (f"configuration.{key}", value)
            for key, value in _flatten(provenance.shown_configuration(results))
        ),
    ]
    return COLUMNS, [{"key": plain(key), "value": _cell(value)} for key, value in found if value is not None]


def settings(results: Results) -> tuple[list[str], Rows] | None:
    """settings.csv: a row an arm, a column for each configuration key in which the arms differ."""
    keys = provenance.differing(results)
    if not keys:
        return None
    rows: Rows = []
    for item in results.arms:
        row: dict[str, Value] = {"arm": item.arm.label}
        row |= {plain(key): _cell(item.arm.differing.get(key)) for key in keys}
        rows.append(row)
    return ["arm", *map(plain, keys)], rows


def _counts(results: Results) -> Iterator[tuple[str, Value]]:
    """How many arms, runs and seeds there are, and which runs do not count."""
    yield "arms", len(results.arms)
    yield "arms_ranked", len(results.ranks)
    yield "runs", len(results.runs)
    yield "runs_finished", len(results.finished)
    yield "runs_uncounted", sum(run.status != "done" for run in results.runs)
    statuses = [plain(run.status, 30) for run in results.runs]
    for status in dict.fromkeys(statuses):
        yield f"runs {status}", statuses.count(status)
    for run in results.runs:
        if run.status != "done":
            yield "uncounted", plain(run.name)
    yield "seeds_most", results.seeds


def _convergence(results: Results) -> Iterator[tuple[str, Value]]:
    """What times to a target and AULC are measured by; losses are nats a token."""
    for target in results.targets:
        yield f"target_loss_{target.fraction:g}", target.loss
    if results.aulc_interval:
        yield "aulc_from", results.aulc_interval[0]
        yield "aulc_to", results.aulc_interval[1]
    validations = [len(run.validations) for run in results.finished]
    yield "validations_fewest", min(validations)
    yield "validations_most", max(validations)
    solved = problems([item for item in results.arms if item.times])
    yield "profile_problems", len(solved)
    yield "profile_seeds", len({seed for _, seed in solved})


def _versions(results: Results) -> Iterator[tuple[str, object]]:
    names = {name for run in results.finished for name in run.versions}
    for name in sorted(names):
        found = (run.versions.get(name) for run in results.finished)
        yield from ((f"version of {plain(name, 40)}", value) for value in _different(found))


def _flatten(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Every setting by its keys with dots between; a list is its items, each under the list's key."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _flatten(item, f"{key}.{name}" if key else name)
    elif isinstance(value, list):
        for item in value:
            yield from _flatten(item, key)
    else:
        yield key, value


def _different(values: Iterable[object]) -> list[object]:
    """Each value once. A boolean is not the number that it equals."""
    found: dict[str, object] = {json.dumps(value, default=str): value for value in values}
    return list(found.values())


def _cell(value: Any) -> Value:
    """A raw number, or text as the report shows it."""
    if value is None or isinstance(value, bool):
        return None if value is None else str(value).lower()
    return value if isinstance(value, int | float) else plain(value)
