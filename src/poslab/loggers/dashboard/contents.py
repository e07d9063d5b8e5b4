"""The measurements of a study's runs, from their records or from W&B; they decide the study's panels."""

import re
from collections.abc import Iterable, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from poslab.config.text import one_line
from poslab.loggers.send.charts import chart_rows, summary
from poslab.record.reader import load

LONGEST_QUESTION = 500  # characters

SLIDING = re.compile(r"sliding_(\d+(?:\.\d+)?)x")


@dataclass(frozen=True)
class Contents:
    """What at least one run of a study has measured. Multiples are of the training length L."""

    question: str
    runs: int  # the number of compared runs, without trials of a learning rate
    keys: Set[str]  # the keys of figures and charts in W&B
    arms: tuple[str, ...]  # their names in W&B: scheme / attention / other settings

    @property
    def longest(self) -> float | None:
        """The largest multiple with a loss over sliding windows: 1 if nothing was measured past L."""
        return max((float(match[1]) for key in self.keys if (match := SLIDING.fullmatch(key))), default=None)


def from_records(study: str, runs: Path) -> Contents:
    """Return the contents of the records in `runs`/`study`. Raise ReportError if there are none."""
    records = load(study, runs)
    compared = [run for run in records.runs if run.readable and not run.tunes]
    keys = {key for run in compared for key in summary(run)}
    keys |= {key for run in compared for row in chart_rows(run) for key in row}
    # Other settings that differ are left out: a record does not have their command-line names.
    arms = [f"{run.pos} / {run.attention}" for run in compared]
    return _contents([records.question], len(compared), keys, arms)


def from_wandb(runs: Iterable[Any]) -> Contents:
    """Return the contents of a study from its training runs, as `wandb.Api` returns them."""
    compared = [run for run in runs if run.config.get("part") != "tuning"]
    keys = {key for run in compared for key in run.summary_metrics}
    keys |= {key for run in compared for key in (run.historyKeys or {}).get("keys", ())}
    arms = [one_line(run.config["arm"]) for run in compared if isinstance(run.config.get("arm"), str)]
    return _contents([run.notes for run in compared], len(compared), keys, arms)


def _contents(questions: Iterable[str | None], runs: int, keys: Set[str], arms: Iterable[str]) -> Contents:
    question = next(filter(None, questions), "")
    return Contents(one_line(question, LONGEST_QUESTION), runs, keys, tuple(sorted(set(arms))))
