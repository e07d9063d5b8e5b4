"""A study's dashboards where there is a login: what the real client sends, to a stand-in for W&B's server."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from poslab.analysis.palette import arm_numbers, look
from poslab.commands.dashboard import main
from poslab.loggers.dashboard.contents import from_records
from poslab.loggers.dashboard.documents import make_workspace, specification
from poslab.loggers.send.charts import chart_rows, summary
from poslab.record.reader import load
from support.commands import assert_refused
from support.dashboards import QUESTION, STUDY, run_sets, sections, write_study
from support.records import write_run
from support.wandb_server.server import served
from support.wandb_server.store import Run, Server, View

server = served("function")
Said = Callable[..., tuple[int, str, str]]


def made(said: Said, *told: str, study: str = STUDY) -> list[str]:
    """What the command prints."""
    status, out, err = said(main, f"study={study}", *told)
    assert (status, err) == (0, "")
    return out.splitlines()


def saved(server: Server) -> tuple[View, View]:
    """The one workspace and the one report."""
    workspace, report = server.views.values()
    assert (workspace.type, report.type) == ("project-view", "runs")
    return replace(workspace), replace(report)


def test_two_calls_leave_one_view_and_one_report_and_bring_both_up_to_date(server, said):
    other = ("project=other", "entity=someone")
    write_run(Path("runs"), "alone", study=STUDY)
    first = made(said, *other)
    before = saved(server)
    assert [view.display_name for view in before] == [STUDY, f"Study {STUDY}"]
    assert [view.project for view in before] == ["other", "other"]
    assert all("Schemes" not in sections(view.spec) for view in before)
    nw = before[0].name.removeprefix("nw-").removesuffix("-v")
    assert first == [
        f"workspace: {server.address}/someone/other?nw={nw}",
        f"report: {server.address}/someone/other/reports/Study-{STUDY}--{before[1].key}",
        # The project was not there yet: nothing is of use until its runs are synced.
        "no run of the study is in someone/other yet; to send the runs: "
        f"wandb sync runs/{STUDY}/*/wandb/offline-run-*",
    ]
    write_study(Path("runs"))
    assert made(said, *other) == first
    workspace, report = after = saved(server)
    for old, new in zip(before, after, strict=True):
        assert (new.key, new.display_name) == (old.key, old.display_name)
        assert (old.saves, new.saves) == (1, 2)
        assert list(sections(new.spec)) == ["Convergence", "Extrapolation", "Cost", "Schemes"]
    contents = from_records(STUDY, Path("runs"))
    assert workspace.spec == specification(make_workspace(STUDY, contents, "someone", "other"))
    # In W&B, too, a scheme has the colour of poslab's figures.
    colour = look(arm_numbers([("rope", "softmax")])[0]).light
    assert colour in workspace.spec["section"]["customRunColors"].values()
    grids = [block for block in report.spec["blocks"] if block["type"] == "panel-grid"]
    assert all(colour in grid["metadata"]["customRunColors"].values() for grid in grids)
    for runs in run_sets(report.spec):
        assert (runs["project"]["entityName"], runs["project"]["name"]) == ("someone", "other")
    assert not Path("reports").exists()


def test_another_study_and_what_somebody_wrote_under_the_same_title_are_left_alone(server, said):
    for study in (STUDY, "second"):
        write_run(Path("runs"), "alone", study=study)
        made(said, study=study)
    for view in server.views.values():
        if view.display_name == f"Study {STUDY}":
            view.description = "what I found"  # by somebody who made it their own
    for _ in range(2):
        made(said)
    assert [(view.display_name, view.saves) for view in server.views.values()] == [
        (STUDY, 3),
        (f"Study {STUDY}", 1),
        ("second", 1),
        ("Study second", 1),
        (f"Study {STUDY}", 2),
    ]


def test_without_records_the_runs_in_wandb_tell_the_same(server, said):
    write_study(Path("kept"))
    for record in load(STUDY, Path("kept")).runs:
        config = {"part": "tuning" if record.tunes else "comparison"}
        config |= {"arm": f"{record.pos} / {record.attention}"}
        run = Run("poslab", record.name, "", STUDY, "train", notes=QUESTION, raw_summary=summary(record))
        run.raw_config = {key: {"value": value} for key, value in config.items()}
        run.lines["wandb-history.jsonl"] = list(map(json.dumps, chart_rows(record)))
        server.runs[record.name] = run
    server.project_facts("poslab")
    assert len(made(said)) == 2
    told = saved(server)[0].spec
    assert made(said, "runs=kept")
    assert saved(server)[0].spec == told


def test_a_study_known_nowhere_is_one_line(server, said):
    expected = f"study={STUDY} has no records in runs and no runs in W&B's someone/poslab"
    assert_refused(said(main, f"study={STUDY}"), expected)
    assert server.views == {}
