"""The workspace view and the Report of a study, as wandb-workspaces objects. No server is called here."""

import hashlib
import math
from typing import Any

import wandb_workspaces.reports.v2.interface as wr
import wandb_workspaces.workspaces as ws
from wandb_workspaces import expr

from poslab.analysis.palette import arm_numbers, look
from poslab.config.installation import typed
from poslab.loggers.dashboard import words
from poslab.loggers.dashboard.contents import Contents
from poslab.loggers.dashboard.panels import ARM, groups, headline, limit

COLUMNS = 3  # panels per row in a workspace
WIDE, HIGH = 12, 8  # size of a report's panel; the grid has 24 columns


def view_id(study: str) -> str:
    """Return the id in the name of the study's view: always the same, so that the view is found again."""
    return hashlib.sha256(f"view\n{study}".encode()).hexdigest()[:12]


def report_title(study: str) -> str:
    return f"Study {study}"


def report_description(study: str) -> str:
    """Return the text that distinguishes the study's Report from a manual one with the same title."""
    return (
        f"Made by {typed('dashboard')} study={study}, which replaces what is written here when it is run "
        "again. To keep your own version, clone this report."
    )


def is_made_here(description: str, study: str) -> bool:
    """Return whether a Report's description is that of the study's Report, for any form of the command."""
    return description.startswith("Made by ") and f" study={study}, which replaces what " in description


def make_workspace(study: str, contents: Contents, entity: str, project: str) -> ws.Workspace:
    """Return the study's view: only its runs, one line per arm, panels in sections."""
    workspace = ws.Workspace(
        entity=entity,
        project=project,
        name=study,
        sections=[
            ws.Section(
                name=name,
                panels=[*panels],
                is_open=True,
                layout_settings=ws.SectionLayoutSettings(
                    columns=COLUMNS, rows=math.ceil(len(panels) / COLUMNS)
                ),
            )
            for name, panels in groups(contents).items()
        ],
        settings=ws.WorkspaceSettings(max_runs=limit(contents), point_visualization_method="downsampling"),
        runset_settings=ws.RunsetSettings(
            filters=_of_study(study),
            groupby=[ws.Config(ARM)],
            order=[ws.Ordering(ws.Metric("Name"))],
            group_colors=dict(colours(contents).items()),
            pinned_columns=[f"summary:{name}" for name in ("status", "parameters", *headline(contents))],
        ),
    )
    workspace._internal_name = f"nw-{view_id(study)}-v"
    return workspace


def make_report(study: str, contents: Contents, entity: str, project: str) -> wr.Report:
    """Return the study's Report. Saving it queries the server for the project if one is named.

    Text from configurations is in paragraphs, as plain text: W&B reads Markdown only in Markdown blocks.
    """
    reading: list[Any] = [
        wr.TableOfContents(),
        wr.H1("Question"),
        wr.P(contents.question or words.NO_QUESTION),
        wr.H1("How to read it"),
        wr.UnorderedList(items=list(words.reading(study))),
        wr.H1("The report page"),
        *(wr.P(text) for text in words.page(study)),
    ]
    sections: list[Any] = []
    for name, panels in groups(contents).items():
        for i, panel in enumerate(panels):  # two per row
            panel.layout = wr.Layout(x=WIDE * (i % 2), y=HIGH * (i // 2), w=WIDE, h=HIGH)
        runs = wr.Runset(
            entity=entity,
            project=project,
            name=study,
            filters=_of_study(study),
            groupby=[f"config.{ARM}"],
            order=[wr.OrderBy("Name", ascending=True)],
        )
        sections += [
            wr.H1(name),
            wr.UnorderedList(items=list(words.SECTIONS[name])),
            wr.PanelGrid(
                runsets=[runs],
                panels=[*panels],
                custom_run_colors={
                    wr.RunsetGroup(study, (wr.RunsetGroupKey(wr.Config(ARM), arm),)): colour
                    for arm, colour in colours(contents).items()
                },
            ),
        ]
    return wr.Report(
        project=project,
        entity=entity,
        title=report_title(study),
        description=report_description(study),
        width="fixed",
        blocks=[*reading, *sections],
    )


def colours(contents: Contents) -> dict[str, str]:
    """Return the colour of each arm by its name in W&B: the same as in all of poslab's figures."""
    pairs = (name.split(" / ") for name in contents.arms)
    numbers = arm_numbers((pos, attention) for pos, attention in pairs)
    return {name: look(number).light for name, number in zip(contents.arms, numbers, strict=True)}


def _of_study(study: str) -> expr.And:
    """Return a filter for the study's compared runs: no trials of a learning rate, no report runs."""
    return expr.And(
        expr.Config("study") == study,
        expr.Metric("JobType") == "train",
        expr.Config("part") == "comparison",
    )
