"""Trackio: each run's curve and figures in a local database, without an account.

`trackio show --project poslab` shows the runs; the runs of a study are a group.
"""

from collections.abc import Mapping
from contextlib import redirect_stdout
from io import StringIO
from typing import Any
from unittest.mock import patch

from pandas import DataFrame
from pydantic import Field

from poslab.config.request import flat_settings
from poslab.config.schema import Options
from poslab.loggers import OpenedRun, RunLogger, final_figures
from poslab.loggers.send.charts import sheets, training_row
from poslab.record.manifest import parse_manifest
from poslab.record.reader import load_evaluation


class TrackioOptions(Options):
    project: str = Field(min_length=1, description="the Trackio project; a study's runs are a group in it")


class Trackio(RunLogger):
    options_class = TrackioOptions
    options: TrackioOptions
    title = "Trackio"
    package = "trackio"

    def open(self, run: OpenedRun) -> None:
        import trackio

        with redirect_stdout(StringIO()):  # it prints the location of its data each time
            self._run = trackio.init(
                self.options.project,
                name=f"{run.card.group}/{run.directory.name}",
                group=run.card.group,
                config=flat_settings(run.config.result_settings()),
                resume="allow",
                embed=False,
                auto_log_gpu=False,
                auto_log_cpu=False,
            )
        self._directory, self._logged = run.directory, self._run._next_step - 1
        self._step = 0  # the step of the last row
        for row in run.rows:
            self.log(row)

    def log(self, row: Mapping[str, Any]) -> None:
        values = training_row(row)
        self._step = int(values.pop("step"))
        self._once(values, self._step)

    def finish(self, manifest: str, exit_code: int) -> None:
        from trackio import Table

        facts = parse_manifest(manifest.encode())
        if facts.status == "done":
            run = load_evaluation(self._directory, facts)
            tables = {
                f"tables/{name}": Table(dataframe=DataFrame(rows)) for name, rows in sheets(run).items()
            }
            self._once({**final_figures(run), **tables}, self._step + 1)
        with patch("trackio.run.print", create=True):  # in its module only: other threads may print
            self._run.finish()

    def _once(self, values: Mapping[str, Any], step: int) -> None:
        """Log values, unless the run already has this step: Trackio would store it twice."""
        if step > self._logged:
            self._run.log(dict(values), step)
            self._logged = step
