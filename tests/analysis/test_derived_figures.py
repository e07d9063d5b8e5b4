"""A new figure from an existing table takes one file, and no run is measured again."""

import math

import numpy as np
import pytest
import torch

import poslab.measures
from poslab.analysis.results import gather
from poslab.config.schema import ConfigError
from poslab.loggers.send.charts import chart_rows
from poslab.measures import Measurement, figures_of, plain_row
from poslab.record.reader import load
from poslab.record.schema import EXTRAPOLATION
from poslab.report.sections.contents import document
from poslab.report.study_tables import StudyTables
from support.records import write_run


class WorstSegment(Measurement):
    table = EXTRAPOLATION

    def summarise(self, table):
        rows = table[(table.protocol == "sliding") & (table.multiple == 1)]
        return (rows.nll / rows.tokens).groupby(rows.run).max().to_frame("worst_segment")


def test_a_measurement_may_add_figures_to_the_table_of_another(tmp_path):
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


def test_two_figures_of_one_name_are_refused(tmp_path, monkeypatch):
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


@pytest.mark.parametrize("shape", ["squeeze", "reset_index"])
def test_figures_that_are_not_a_row_per_run_are_refused(tmp_path, monkeypatch, shape):
    """In one line: a Series, and a DataFrame without the runs as its index, ended in a traceback."""

    class Shaped(WorstSegment):
        table = EXTRAPOLATION

        def summarise(self, table):
            figures = super().summarise(table)
            return figures["worst_segment"] if shape == "squeeze" else figures.reset_index()

    write_run(tmp_path, "run")
    monkeypatch.setattr(poslab.measures, "measurements", lambda: (Shaped(),))
    with pytest.raises(ConfigError, match=r"test_derived_figures: `summarise` returned a .*row per run"):
        gather("made_up", tmp_path, None)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (lambda curve: curve["sum"], "a Series"),
        (lambda curve: curve.set_axis([0] * len(curve)), "0 twice in its index"),
        (lambda curve: curve.assign(kind="nats"), "text in the column kind"),
        (lambda curve: curve.assign(run=1), "a column named run"),
    ],
)
def test_a_curve_that_breaks_its_contract_is_refused(tmp_path, monkeypatch, wrong, named):
    """In one line, in the report and by loggers."""

    class Wrong(WorstSegment):
        table = EXTRAPOLATION
        axis = "segment"

        def curve(self, table):
            return wrong(table.groupby("segment").nll.sum().to_frame("sum"))

    write_run(tmp_path, "run")
    monkeypatch.setattr(poslab.measures, "measurements", lambda: (Wrong(),))
    monkeypatch.setattr("poslab.loggers.send.charts.measurements", lambda: (Wrong(),))
    with pytest.raises(ConfigError, match=f"test_derived_figures: `curve` returned .*{named}") as error:
        StudyTables(gather("made_up", tmp_path, None)).default_section(Wrong())
    assert "\n" not in str(error.value)
    with pytest.raises(ConfigError, match=named):
        [*chart_rows(load("made_up", tmp_path).runs[0])]


@pytest.mark.parametrize(
    ("attribute", "value"),
    [("columns", ("pos", "nll")), ("axis", "n"), ("axis", "arm"), ("chapter", "text")],
)
def test_a_name_that_reports_use_is_refused_for_a_column_an_axis_or_a_chapter(attribute, value):
    """The report replaced such a column by its own of that name, and left out a section in no chapter."""
    with pytest.raises(ConfigError, match=rf"Named\.{attribute} cannot be (pos|n|arm|text)$"):
        type("Named", (Measurement,), {"columns": ("x",), attribute: value})


@pytest.mark.parametrize(
    "row",
    [
        {"x": 1, "y": 2, "z": 3},
        {"x": 1},
        {"x": torch.zeros(2), "y": 2},
        {"x": 1, "y": np.zeros(3)},
        {"x": 1, "y": [2.0, 3.0]},
        "x",  # of a DataFrame or a mapping in place of rows
    ],
)
def test_a_row_that_does_not_fit_the_columns_names_its_measurement(row):
    """A cell that was left out was stored as an empty one, without a word."""

    class Plain(Measurement):
        columns = "x", "y"

    assert plain_row(Plain(), {"x": torch.ones(()), "y": np.int64(2)}) == {"x": 1.0, "y": 2}
    with pytest.raises(ValueError, match=r"measurement test_derived_figures: .* for each of x, y$"):
        plain_row(Plain(), row)


def test_a_slash_in_the_name_of_a_line_makes_no_folder(tmp_path, monkeypatch):
    """Nor do two lines with names that differ only in what a file name cannot have share a file."""

    class Slashed(WorstSegment):
        table = EXTRAPOLATION
        axis = "segment"
        family = "worst/segment"

        def curve(self, table):
            sums = table.groupby("segment").nll.sum()
            return sums.to_frame("sum/all_2").assign(**{"sum/all": 2 * sums, "sum_all": 3 * sums})

    write_run(tmp_path, "run")
    monkeypatch.setattr(poslab.measures, "measurements", lambda: (Slashed(),))
    section = StudyTables(gather("made_up", tmp_path, None)).default_section(Slashed())
    names = [chart.name.removeprefix("worst_segment_") for chart in section.charts]
    assert names == ["sum_all_2", "sum_all", "sum_all_2_2"]
    assert [*section.sheets] == ["worst_segment_arms", "worst_segment"]


def test_a_measurement_named_as_a_table_of_the_report_is_refused(tmp_path, monkeypatch):
    """Its figures replaced arms.csv, and with the name `summary` its own figures were not written."""

    class Arms(WorstSegment):
        table = EXTRAPOLATION
        family = "arms"

    write_run(tmp_path, "run")
    found = gather("made_up", tmp_path, None)
    assert "arms" in document(found).sheets
    for module in ("poslab.measures", "poslab.report.sections.contents"):
        monkeypatch.setattr(f"{module}.measurements", lambda: (Arms(),))
    with pytest.raises(ConfigError, match=r"two tables named arms\.csv"):
        document(found)


def test_a_line_without_any_number_is_not_drawn(tmp_path):
    class Lines(WorstSegment):
        table = EXTRAPOLATION
        axis = "segment"

        def curve(self, table):
            return table.groupby("segment").nll.sum().to_frame("sum").assign(undefined=math.nan)

    write_run(tmp_path, "run")
    charts = StudyTables(gather("made_up", tmp_path, None)).lines(Lines())
    assert [chart.y_label for chart in charts] == ["Sum"]
