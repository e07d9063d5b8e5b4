"""The measurements of a study's runs, from their records; they decide the study's panels."""

import re
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path

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
    arms: tuple[str, ...]  # their names in W&B: scheme / attention

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
    arms = sorted({one_line(f"{run.pos} / {run.attention}") for run in compared})
    question = one_line(records.question or "", LONGEST_QUESTION)
    return Contents(question, len(compared), keys, tuple(arms))
