"""The content of a study's W&B workspace and Report."""

import json
import re
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from poslab.commands.dashboard import main
from poslab.loggers.dashboard.contents import Contents, from_records
from poslab.loggers.dashboard.documents import make_report, make_workspace
from poslab.loggers.dashboard.panels import groups
from poslab.loggers.send.charts import axes as all_axes
from poslab.loggers.send.charts import chart_rows, summary, training_row
from poslab.record.reader import load
from poslab.record.schema import METRICS
from support.dashboards import STUDY, run_sets, sections, specification, write_study
from support.records import plan, write_run

PLAIN = "Does **it** work? [click](http://evil.example) <script>alert(1)</script> [31m"

# A row of metrics.csv as reported by training.
TOLD = dict.fromkeys(METRICS.columns, 1.0) | {"memory_bytes": 1.0}


def logged(runs: Path, study: str = STUDY) -> tuple[set[tuple[str, str]], set[str]]:
    """Return what the tracker logs of a study: history keys with their x axis, and summary figures."""
    rows = [("tokens", training_row(TOLD)), ("seconds", training_row(TOLD))]
    figures = {"status", "validation/loss.last"}  # the last one by define_axes
    for run in load(study, runs).runs:
        figures |= set(summary(run))
        rows += [(axis, row) for row in chart_rows(run) for axis in all_axes().values() if axis in row]
    return {(axis, key) for axis, row in rows for key in row}, figures


def documents(runs: Path, study: str = STUDY) -> list[dict[str, Any]]:
    """Return the workspace and the Report of a study as W&B gets them."""
    contents = from_records(study, runs)
    report = make_report(study, contents, "", "")  # with a project, it would query the server for that
    return [specification(made) for made in (make_workspace(study, contents, "", ""), report)]


@pytest.fixture
def runs(tmp_path):
    """The records of a study with all measurements."""
    write_study(tmp_path)
    return tmp_path


def check_metrics(panel: dict[str, Any], history: set[tuple[str, str]], figures: set[str]) -> None:
    """Check that runs log every metric of the panel, over the same axis."""
    config = panel["config"]
    summaries = {f"summary:{name}" for name in figures}
    match panel["viewType"]:
        case "Run History Line Plot":
            assert {(config["xAxis"], metric) for metric in config["metrics"]} <= history
            for metric in config["metrics"]:
                own = {axis for family, axis in all_axes().items() if fnmatch(metric, family)}
                assert own <= {config["xAxis"]}
        case "Bar Chart":
            assert set(config["metrics"]) <= figures
        case "Scatter Plot":
            assert {config["xAxis"], config["yAxis"]} <= summaries
        case "Parallel Coordinates Plot":
            first, *rest = (column["accessor"] for column in config["columns"])
            assert first == "config:arm.value"
            assert set(rest) <= summaries
        case other:
            raise AssertionError(other)


def test_every_panel_shows_what_runs_log_by_arm_in_a_unit(runs):
    known = logged(runs)
    for document in documents(runs):
        found = sections(document)
        assert list(found) == ["Convergence", "Extrapolation", "Cost", "Schemes"]
        every = [panel for panels in found.values() for panel in panels]
        assert len(every) > 30
        for panel in every:
            config = panel["config"]
            check_metrics(panel, *known)
            assert config["chartTitle"]
            if panel["viewType"] in ("Run History Line Plot", "Bar Chart"):
                assert config["xAxisTitle"]
                assert config["yAxisTitle"]
                assert config["groupBy"] == "arm.value"
                assert config["groupArea"] == "minmax"
                assert config["aggregate"] is True
                assert config["limit"] >= 100  # W&B would show ten
            if panel["viewType"] == "Run History Line Plot":
                assert config["smoothingType"] == "none"
                assert config["ignoreOutliers"] is False
                assert config["groupAgg"] == "mean"


def test_the_runs_are_those_of_the_study_without_trials(runs):
    workspace, report = documents(runs)
    assert len(list(run_sets(report))) == 4
    for document in (workspace, report):
        for shown in run_sets(document):
            filters = shown["filters"]["filters"]
            assert all(one["op"] == "=" and not one["disabled"] for one in filters)
            assert all(one["connector"] == "AND" for one in filters[1:])
            assert {f"{one['key']['section']}.{one['key']['name']}": one["value"] for one in filters} == {
                "config.study": STUDY,
                "run.jobType": "train",
                "config.part": "comparison",
            }
            assert shown["grouping"] == [{"section": "config", "name": "arm.value"}]


def test_the_report_has_the_question_and_text_from_configs_stays_text(runs):
    _, report = documents(runs)
    blocks = report["blocks"]
    kinds = {block["type"] for block in blocks}
    assert kinds == {"paragraph", "table-of-contents", "heading", "list", "panel-grid"}  # no Markdown block
    assert {"type": "paragraph", "children": [{"text": PLAIN}]} in blocks
    whole = json.dumps(blocks)
    assert whole.count("evil.example") == 1
    assert f"report-{STUDY}" in whole
    assert f"reports/{STUDY}/index.html" in whole
    order = [block["type"] for block in blocks if block["type"] in ("list", "panel-grid")]
    assert order == ["list", *["list", "panel-grid"] * 4]  # a text above each section's panels


def test_a_study_has_panels_for_its_measurements_only(tmp_path):
    write_run(tmp_path, "a", study="plain")
    write_run(tmp_path, "a", study="begun", status="running")
    plan(tmp_path, ["a"], study="begun")
    found = {}
    for name in ("plain", "begun"):
        workspace, _ = documents(tmp_path, name)
        found[name] = sections(workspace)
    assert list(found["plain"]) == ["Convergence", "Extrapolation", "Cost"]
    assert not re.search(r"rescaled|retrieval|scheme/", json.dumps(found["plain"]))
    assert list(found["begun"]) == ["Convergence", "Cost"]
    assert "summary:validation/loss.last" in json.dumps(found["begun"]["Cost"])
    for name, panels in found.items():
        known = logged(tmp_path, name)
        for panel in (panel for section in panels.values() for panel in section):
            check_metrics(panel, *known)


def test_a_measurement_without_panels_gets_one_for_each_line():
    keys = {"task/exact", "task/tokens", "task/size", "attention_distance/mean"}
    found = groups(Contents("", 1, keys, ("rope / flash",)))
    panels = {panel.title: (panel.x, panel.y) for panel in found["Other measurements"]}
    assert panels == {f"Task: {line}": ("task/size", [f"task/{line}"]) for line in ("exact", "tokens")}
    assert not any("bits" in panel.title for panel in found["Convergence"])


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (["study=gone"], "study=gone has no records in runs"),
        (["study=../made_up"], "study=../made_up has no records in runs; studies with records: made_up"),
        ([], "give study=NAME; studies with records: made_up"),
        (["study=made_up"], "since WANDB_MODE=offline"),  # also with a login
    ],
)
def test_a_failed_dashboard_is_one_line_and_status_2(tmp_path, monkeypatch, capsys, told, said):
    monkeypatch.chdir(tmp_path)
    write_run(Path("runs"), "a")
    assert main(told) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
