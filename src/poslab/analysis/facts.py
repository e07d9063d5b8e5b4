"""Provenance of a study's figures: facts.csv of its runs and settings.csv of its arms."""

import json
import shlex
from collections.abc import Iterable, Iterator
from typing import Any

from poslab.analysis.comparisons import origin_of, tokens_per_parameter
from poslab.analysis.results import Results
from poslab.analysis.sheets import Rows, Sheet
from poslab.analysis.titles import compared, title
from poslab.config.installation import typed
from poslab.config.request import flat_settings
from poslab.config.text import plain, published
from poslab.record.measures import Value
from poslab.record.reader import Run
from poslab.record.summary import is_pretrained

ORIGIN = "study", "run", "identity", "checkpoint", "steps", "tokens", "context_length"


def _facts(run: Run) -> dict[str, object]:
    """Return the recorded facts of a run, by their keys in facts.csv; None for those not on record."""
    model, manifest = run.config.get("model") or {}, run.manifest
    source, hardware = manifest.source, manifest.hardware
    gpus = getattr(hardware, "gpus", None)
    return {
        "context_length": run.context_length,
        "budget": None if is_pretrained(run) else run.budget,
        **{key: model.get(key) for key in ("layers", "width", "heads")},
        "learning_rate": run.config["trainer"].get("learning_rate"),
        "parameters": manifest.parameters,
        "tokens_per_parameter": tokens_per_parameter(run),
        "data": run.data_name,
        "data_fingerprint": run.data_fingerprint,
        "vocabulary": run.vocabulary,
        "device": manifest.device,
        "precision": manifest.precision,
        "code": manifest.code,
        **{f"from_{key}": origin_of(run, key) for key in ORIGIN},
        **{key: getattr(source, key, None) for key in ("commit", "modified")},
        "gpu": None if gpus is None else ", ".join(gpus),
        **{key: getattr(hardware, key, None) for key in ("processor", "cores", "memory_bytes", "system")},
    }


def facts_sheet(results: Results) -> Sheet:
    """Return facts.csv: a row per value, so several rows for a key in which the finished runs differ."""
    known = list(map(_facts, results.finished))
    values: list[tuple[str, object]] = [
        ("study", results.study),
        *(("question", question) for question in results.questions),
        ("title", title(results)),
        ("compared", compared(results)),
        ("reference", results.reference.arm.label),
        ("arms", len(results.arms)),
        ("runs", len(results.runs)),
        ("runs_finished", len(results.finished)),
        ("seeds_most", results.seeds),
        *((key, value) for key in known[0] for value in _different(facts[key] for facts in known)),
        *(("seed", seed) for seed in sorted({run.seed for run in results.finished})),
        *(("multiple", k) for k in sorted({k for run in results.finished for _, k in run.segments})),
        ("primary", results.primary),
        ("usable_length_fixed_limit", results.fixed_limit),
        *((f"target_loss_{target.fraction:g}", target.loss) for target in results.targets),
        *zip(("aulc_from", "aulc_to"), results.aulc_interval or (None, None), strict=True),
        *_versions(results),
        *(("command", line) for line in results.commands),
        ("report_command", report_command(results)),
        ("configuration_of", results.first.name),
        *(
            (f"configuration.{key}", item)
            for key, value in flat_settings(shown_configuration(results)).items()
            for item in (value if isinstance(value, list) else [value])
        ),
    ]
    rows: Rows = [{"key": plain(key), "value": _cell(value)} for key, value in values if value is not None]
    return ["key", "value"], rows


def _versions(results: Results) -> Iterator[tuple[str, object]]:
    names = {name for run in results.finished for name in run.versions}
    for name in sorted(names):
        versions = (run.versions.get(name) for run in results.finished)
        yield from ((f"version of {plain(name, 40)}", value) for value in _different(versions))


def _different(values: Iterable[object]) -> list[object]:
    """Return each distinct value once; True and 1 are distinct."""
    return list({json.dumps(_cell(value)): value for value in values}.values())


def _cell(value: Any) -> Value:
    """Return a number as it is, and anything else as text in the form that the report shows."""
    if isinstance(value, bool):
        return str(value).lower()
    return value if value is None or isinstance(value, int | float) else plain(value)


def report_command(results: Results) -> str:
    """Return the command line that writes this report from the runs' records."""
    options = [results.subject.option, f"reference={results.reference.arm.label}"]
    options += [] if results.primary is None else [f"primary={results.primary}"]
    return f"{typed('report')} {' '.join(map(shlex.quote, options))}"


def shown_configuration(results: Results) -> Any:
    """Return the whole configuration of the first run, without local paths."""
    return published(results.first.config)


def settings_sheet(results: Results) -> Sheet | None:
    """Return settings.csv: a row per arm, a column per configuration key in which the arms differ."""
    rows: Rows = [
        {
            "arm": item.arm.label,
            **{
                plain(key): value if isinstance(value, bool) else _cell(value)
                for key, value in item.arm.differing.items()
            },
        }
        for item in results.arms
    ]
    return (list(rows[0]), rows) if results.differing else None
