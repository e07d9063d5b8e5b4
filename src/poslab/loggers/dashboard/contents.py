"""What a study's runs have measured, from their records or from W&B: this decides the study's panels."""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from poslab.config.text import one_line
from poslab.loggers.send.charts import chart_rows, summary
from poslab.record.reader import Run, load
from poslab.record.study_list import read_study_list

LONGEST_QUESTION = 500  # characters

NUMBER = r"(\d+(?:\.\d+)?)"
SLIDING = re.compile(rf"sliding_{NUMBER}x")
RESCALED = re.compile(r"rescaled/(\w+)/loss")
RETRIEVAL = re.compile(r"retrieval/([^/]+)_(\d+(?:_\d+)?)x")
BIAS = re.compile(r"scheme/bias/layer(\d+)_head(\d+)")
BOUND = re.compile(r"scheme/bound/layer(\d+)")
ATTENDED = "attention_distance/mean"
FAILURE = "failure_position"


@dataclass(frozen=True)
class Contents:
    """What at least one run of a study has measured; multiples are those of the training length L."""

    question: str
    runs: int  # the number of runs that compare; trials of a learning rate are not counted
    multiples: tuple[float, ...]  # with a loss over sliding windows
    rescaled: tuple[str, ...]  # methods
    retrieval: tuple[tuple[str, float, tuple[str, ...]], ...]  # task, multiple, and the keys of its line
    bias: tuple[tuple[int, tuple[int, ...]], ...]  # a layer and its heads
    bound: tuple[int, ...]  # layers
    attended: bool
    arms: tuple[str, ...]  # their names in W&B: scheme / attention / other settings
    failed: bool  # a run failed past L: its loss by position rose over 5 % above the plateau

    @property
    def longest(self) -> float | None:
        """The largest multiple past L, if any."""
        return next((k for k in reversed(self.multiples) if k > 1), None)


def from_records(study: str, runs: Path) -> Contents:
    """Return the contents of the records in `runs`/`study`. Raise ReportError where there are none."""
    compared = [run for run in load(study, runs).runs if run.readable and not run.tunes]
    keys = {key for run in compared for key in _keys(run)}
    # Other settings that differ are left out: a record does not have their names on the command line.
    arms = [f"{run.pos} / {run.attention}" for run in compared]
    return _contents(keys, [_question(runs / study)], len(compared), arms)


def from_wandb(runs: Iterable[Any]) -> Contents:
    """Return the contents of a study from its training runs, as `wandb.Api` returns them."""
    compared = [run for run in runs if run.config.get("part") != "tuning"]
    keys = {key for run in compared for key in run.summary_metrics}
    keys |= {key for run in compared for key in (run.historyKeys or {}).get("keys", ())}
    arms = [one_line(run.config["arm"]) for run in compared if isinstance(run.config.get("arm"), str)]
    return _contents(keys, [run.notes for run in compared], len(compared), arms)


def _keys(run: Run) -> Iterable[str]:
    """Yield the keys under which W&B has the figures of a record."""
    yield from summary(run)
    for row in chart_rows(run):
        yield from row


def _contents(keys: Collection[str], questions: Iterable[object], runs: int, arms: Iterable[str]) -> Contents:
    heads: dict[int, list[int]] = {}
    for layer, head in sorted((int(layer), int(head)) for layer, head in _matches(BIAS, keys)):
        heads.setdefault(layer, []).append(head)
    question = next((text for text in questions if isinstance(text, str) and text.strip()), "")
    return Contents(
        question=one_line(question, LONGEST_QUESTION),
        runs=runs,
        multiples=tuple(sorted(float(multiple) for (multiple,) in _matches(SLIDING, keys))),
        rescaled=tuple(sorted(method for (method,) in _matches(RESCALED, keys))),
        retrieval=_retrieval(keys),
        bias=tuple((layer, tuple(numbers)) for layer, numbers in heads.items()),
        bound=tuple(sorted(int(layer) for (layer,) in _matches(BOUND, keys))),
        attended=ATTENDED in keys,
        arms=tuple(sorted(set(arms))),
        failed=FAILURE in keys,
    )


def _retrieval(keys: Iterable[str]) -> tuple[tuple[str, float, tuple[str, ...]], ...]:
    lines: dict[tuple[str, float], list[str]] = {}
    for key in sorted(keys):
        if match := RETRIEVAL.fullmatch(key):
            lines.setdefault((match[1], float(match[2].replace("_", "."))), []).append(key)
    return tuple((task, multiple, tuple(line)) for (task, multiple), line in sorted(lines.items()))


def _matches(pattern: re.Pattern[str], keys: Iterable[str]) -> Iterable[tuple[str, ...]]:
    return (match.groups() for key in keys if (match := pattern.fullmatch(key)))


def _question(folder: Path) -> str | None:
    """Return the question of the study, None where its list has none or cannot be read."""
    try:
        listed = read_study_list(folder)
    except (OSError, ValueError):
        return None
    return None if listed is None else listed.question
