"""A study's W&B workspace and Report, written as files without a login."""

import json
import re
import socket
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from poslab.commands.dashboard import main
from poslab.loggers.send.charts import axes as all_axes
from poslab.loggers.send.charts import chart_rows, summary, training_row
from poslab.record.reader import load
from poslab.record.schema import METRICS
from support.dashboards import STUDY, run_sets, sections, write_study
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


@pytest.fixture
def no_login(monkeypatch, tmp_path):
    """Remove all keys, and make every connection an error."""
    monkeypatch.delenv("WANDB_MODE")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))

    def refuse(self: socket.socket, address: Any) -> None:
        raise AssertionError(f"a connection to {address}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "connect_ex", refuse)


@pytest.fixture
def study(tmp_path, monkeypatch, no_login):
    """The folder of a study with its records and, without a login, its two files."""
    monkeypatch.chdir(tmp_path)
    write_study(Path("runs"))
    assert main([f"study={STUDY}"]) == 0
    return tmp_path / "reports" / STUDY / "wandb"


def documents(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the workspace and the report as written."""
    return tuple(json.loads((folder / f"{name}.json").read_text()) for name in ("workspace", "report"))


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


def test_every_panel_shows_what_runs_log_by_arm_in_a_unit(study):
    known = logged(Path("runs"))
    for document in documents(study):
        found = sections(document["spec"])
        assert list(found) == ["Convergence", "Extrapolation", "Cost", "Schemes"]
        every = [panel for panels in found.values() for panel in panels]
        assert len({panel["__id__"] for panel in every}) == len(every) > 30
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


def test_the_runs_are_those_of_the_study_without_trials(study):
    workspace, report = documents(study)
    assert workspace["name"] == STUDY
    assert len(list(run_sets(report["spec"]))) == 4
    for document in (workspace, report):
        for runs in run_sets(document["spec"]):
            filters = runs["filters"]["filters"]
            assert all(one["op"] == "=" and not one["disabled"] for one in filters)
            assert all(one["connector"] == "AND" for one in filters[1:])
            assert {f"{one['key']['section']}.{one['key']['name']}": one["value"] for one in filters} == {
                "config.study": STUDY,
                "run.jobType": "train",
                "config.part": "comparison",
            }
            assert runs["grouping"] == [{"section": "config", "name": "arm.value"}]


def test_the_report_has_the_question_and_text_from_configs_stays_text(study):
    _, report = documents(study)
    assert report["title"] == f"Study {STUDY}"
    blocks = report["spec"]["blocks"]
    kinds = {block["type"] for block in blocks}
    assert kinds == {"paragraph", "table-of-contents", "heading", "list", "panel-grid"}  # no Markdown block
    assert {"type": "paragraph", "children": [{"text": PLAIN}]} in blocks
    whole = json.dumps(blocks)
    assert whole.count("evil.example") == 1
    assert f"report-{STUDY}" in whole
    assert f"reports/{STUDY}/index.html" in whole
    order = [block["type"] for block in blocks if block["type"] in ("list", "panel-grid")]
    assert order == ["list", *["list", "panel-grid"] * 4]  # a text above each section's panels


def test_a_study_has_panels_for_its_measurements_only(tmp_path, no_login):
    write_run(tmp_path / "runs", "a", study="plain")
    write_run(tmp_path / "runs", "a", study="begun", status="running")
    plan(tmp_path / "runs", ["a"], study="begun")
    found = {}
    for name in ("plain", "begun"):
        told = [f"study={name}", f"runs={tmp_path}/runs", f"reports={tmp_path}/out", "project=other"]
        assert main(told) == 0
        workspace, _ = documents(tmp_path / "out" / name / "wandb")
        assert workspace["project"] == "other"
        found[name] = sections(workspace["spec"])
    assert list(found["plain"]) == ["Convergence", "Extrapolation", "Cost"]
    assert not re.search(r"rescaled|retrieval|scheme/", json.dumps(found["plain"]))
    assert list(found["begun"]) == ["Convergence", "Cost"]
    assert "summary:validation/loss.last" in json.dumps(found["begun"]["Cost"])
    for name, panels in found.items():
        known = logged(tmp_path / "runs", name)
        for panel in (panel for section in panels.values() for panel in section):
            check_metrics(panel, *known)


def test_a_measurement_without_panels_gets_one_for_each_line(no_login):
    from poslab.loggers.dashboard.contents import Contents
    from poslab.loggers.dashboard.panels import groups

    keys = {"task/exact", "task/tokens", "task/size", "attention_distance/mean"}
    found = groups(Contents("", 1, keys, ("rope / flash",)), "here")
    panels = {panel.title: (panel.x, panel.y) for panel in found["Other measurements"]}
    assert panels == {f"Task: {line}": ("task/size", [f"task/{line}"]) for line in ("exact", "tokens")}
    assert not any("bits" in panel.title for panel in found["Convergence"])


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (["study=gone"], "study=gone has no records in runs"),
        (["study=../made_up"], "study=../made_up has no records in runs; studies with records: made_up"),
        ([], "give study=NAME; studies with records: made_up"),
        (["study=made_up", "project=a/b"], "project='a/b' cannot be the name"),
    ],
)
def test_a_failed_dashboard_is_one_line_and_status_2(tmp_path, monkeypatch, capsys, told, said, no_login):
    monkeypatch.chdir(tmp_path)
    write_run(Path("runs"), "a")
    assert main(told) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert not Path("reports").exists()
