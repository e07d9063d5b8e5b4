"""A study's dashboards with a login: what the real client sends to a stand-in for W&B's server."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from poslab.analysis.palette import arm_numbers, look
from poslab.commands.dashboard import main
from support.dashboards import STUDY, run_sets, sections, write_study
from support.records import write_run
from support.wandb_server.server import served
from support.wandb_server.store import Server, View

server = served("function")
RunCommand = Callable[..., tuple[int, str, str]]


def printed_links(run_command: RunCommand, *arguments: str, study: str = STUDY) -> list[str]:
    """Return what the command prints."""
    status, out, err = run_command(main, f"study={study}", *arguments)
    assert (status, err) == (0, "")
    return out.splitlines()


def saved(server: Server) -> tuple[View, View]:
    """Return the only workspace and the only report."""
    workspace, report = server.views.values()
    assert (workspace.type, report.type) == ("project-view", "runs")
    return replace(workspace), replace(report)


def test_a_second_call_updates_the_view_and_the_report(server, run_command):
    other = ("project=other", "entity=someone")
    write_run(Path("runs"), "alone", study=STUDY)
    first = printed_links(run_command, *other)
    before = saved(server)
    assert [view.display_name for view in before] == [STUDY, f"Study {STUDY}"]
    assert [view.project for view in before] == ["other", "other"]
    assert all("Schemes" not in sections(view.spec) for view in before)
    nw = before[0].name.removeprefix("nw-").removesuffix("-v")
    assert first == [
        f"workspace: {server.address}/someone/other?nw={nw}",
        f"report: {server.address}/someone/other/reports/Study-{STUDY}--{before[1].key}",
    ]
    write_study(Path("runs"))
    assert printed_links(run_command, *other) == first
    workspace, report = after = saved(server)
    for old, new in zip(before, after, strict=True):
        assert (new.key, new.display_name) == (old.key, old.display_name)
        assert (old.saves, new.saves) == (1, 2)
        assert list(sections(new.spec)) == ["Convergence", "Extrapolation", "Cost", "Schemes"]
    # In W&B a scheme has the colour that it has in poslab's figures.
    colour = look(arm_numbers([("rope", "softmax")])[0]).light
    assert colour in workspace.spec["section"]["customRunColors"].values()
    grids = [block for block in report.spec["blocks"] if block["type"] == "panel-grid"]
    assert all(colour in grid["metadata"]["customRunColors"].values() for grid in grids)
    for runs in run_sets(report.spec):
        assert (runs["project"]["entityName"], runs["project"]["name"]) == ("someone", "other")
    assert not Path("reports").exists()


def test_another_study_and_views_that_somebody_wrote_are_left_alone(server, run_command):
    for study in (STUDY, "second"):
        write_run(Path("runs"), "alone", study=study)
        printed_links(run_command, study=study)
    for view in server.views.values():
        if view.display_name == f"Study {STUDY}":
            view.description = "what I found"  # by somebody who edited it
    for _ in range(2):
        printed_links(run_command)
    assert [(view.display_name, view.saves) for view in server.views.values()] == [
        (STUDY, 3),
        (f"Study {STUDY}", 1),
        ("second", 1),
        ("Study second", 1),
        (f"Study {STUDY}", 2),
    ]
