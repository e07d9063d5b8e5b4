"""A figure of a table that runs have already: one file, and no run is measured again."""

import math

import pytest

import poslab.measures
from poslab.analysis.results import gather
from poslab.config.schema import ConfigError
from poslab.measures import Measurement, figures_of
from poslab.record.reader import load
from poslab.record.schema import EXTRAPOLATION
from poslab.report.study_tables import StudyTables
from support.records import write_run


class WorstSegment(Measurement):
    table = EXTRAPOLATION

    def summarise(self, table):
        rows = table[(table.protocol == "sliding") & (table.multiple == 1)]
        return (rows.nll / rows.tokens).groupby(rows.run).max().to_frame("worst_segment")


def test_a_measurement_may_add_figures_to_another_ones_table(tmp_path):
    for seed, loss in enumerate((2.0, 2.5)):
        write_run(tmp_path, f"run{seed}", seed=seed, sliding={1.0: loss})
    runs = load("made_up", tmp_path).runs
    found = figures_of(WorstSegment(), runs)
    worst = [found[run.name]["worst_segment"] for run in runs]
    losses = [
        [stretch.nll / stretch.tokens for stretch in run.segments["sliding", 1.0].values()] for run in runs
    ]
    assert worst == [max(segments) for segments in losses]
    assert worst[1] > worst[0]


def test_a_figure_with_the_name_of_another_is_refused(tmp_path, monkeypatch):
    class Renamed(WorstSegment):
        table = EXTRAPOLATION

        def summarise(self, table):
            return super().summarise(table).rename(columns={"worst_segment": "sliding_8x"})

    write_run(tmp_path, "run")
    monkeypatch.setattr(poslab.measures, "measurements", lambda: (Renamed(),))
    with pytest.raises(ConfigError, match=r"figures sliding_8x, which summary\.csv has from elsewhere"):
        gather("made_up", tmp_path, None)
    monkeypatch.setattr(poslab.measures, "measurements", lambda: (WorstSegment(), WorstSegment()))
    with pytest.raises(ConfigError, match="worst_segment"):
        gather("made_up", tmp_path, None)


def test_a_line_without_a_number_has_no_figure(tmp_path):
    class Lines(WorstSegment):
        table = EXTRAPOLATION
        axis = "segment"

        def curve(self, table):
            return table.groupby("segment").nll.sum().to_frame("sum").assign(undefined=math.nan)

    write_run(tmp_path, "run")
    charts = StudyTables(gather("made_up", tmp_path, None)).lines(Lines())
    assert [chart.y_label for chart in charts] == ["Sum"]
