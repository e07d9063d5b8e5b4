"""Both documents to W&B, in place of what they were before; without a login, to files."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import wandb
from wandb_workspaces.workspaces.internal import get_view_dict

from poslab.record.files import write_atomic
from poslab.tracking.dashboard.contents import Contents, Tracked
from poslab.tracking.dashboard.documents import (
    is_made_here,
    make_report,
    make_workspace,
    report_title,
    specification,
    view_name,
)
from poslab.tracking.login import logged_in
from poslab.tracking.send.run import ONLINE_WAIT

OFFLINE = ("offline", "disabled", "dryrun")  # values of WANDB_MODE
PAGE = 100  # runs asked for at once


def why_offline() -> str | None:
    """Why W&B is not called, None where it is: with a key for its server, unless WANDB_MODE forbids it."""
    mode = os.environ.get("WANDB_MODE", "")
    if mode in OFFLINE:
        return f"WANDB_MODE={mode}"
    return None if logged_in() else "no W&B login"


@dataclass(frozen=True)
class Project:
    """A project on W&B's server."""

    api: Any
    entity: str
    name: str

    @property
    def path(self) -> str:
        return f"{self.entity}/{self.name}"

    @property
    def exists(self) -> bool:
        return any(project.name == self.name for project in self.api.projects(self.entity))

    def runs(self, study: str) -> list[Tracked]:
        """The training runs of a study."""
        if not self.exists:
            return []
        wanted = {"group": study, "jobType": "train"}
        return [
            Tracked(run.config, run.notes, {*run.summary_metrics, *(run.historyKeys or {}).get("keys", ())})
            for run in self.api.runs(self.path, filters=wanted, per_page=PAGE, lazy=False)
        ]


def open_project(entity: str | None, name: str) -> Project:
    """The project, of the account's own entity where none is given. Raises what the client raises."""
    wandb.setup(wandb.Settings(silent=True))  # what it would say is said in this program's words
    api = wandb.Api(timeout=ONLINE_WAIT)
    found = entity or api.settings["entity"] or api.default_entity
    if not found:
        raise ValueError("the account belongs to no entity: say entity=NAME")
    return Project(api, found, name)


def publish(study: str, contents: Contents, project: Project) -> tuple[str, str]:
    """Save the view and the Report in place of those of earlier calls; their URLs."""
    if not project.exists:
        project.api.create_project(project.name, project.entity)
    view = make_workspace(study, contents, project.entity, project.name)
    view._internal_id = _view_id(study, project)
    view.save()
    report = make_report(study, contents, project.entity, project.name)
    report.id = _report_id(study, project)
    report.save()
    return view.url, report.url


def write_files(study: str, contents: Contents, project: str, entity: str | None, folder: Path) -> None:
    """Write what `publish` would send as workspace.json and report.json, the same bytes every time."""
    workspace = make_workspace(study, contents, entity or "", project)
    report = make_report(study, contents, entity or "", project, resolve=False)
    where = {"project": project, **({"entity": entity} if entity else {})}
    _write(
        folder / "workspace.json",
        {**where, "name": study, "view": view_name(study), "spec": specification(workspace)},
    )
    _write(
        folder / "report.json",
        {**where, "title": report.title, "description": report.description, "spec": specification(report)},
    )


def _write(path: Path, value: Mapping[str, Any]) -> None:
    write_atomic(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def _view_id(study: str, project: Project) -> str:
    """W&B's id of the study's view, empty where there is none yet."""
    try:
        found = get_view_dict(project.entity, project.name, view_name(study)[len("nw-") : -len("-v")])
    except json.JSONDecodeError:
        raise
    except ValueError:  # the project is there, so that this says that the view is not
        return ""
    return str(found["id"])


def _report_id(study: str, project: Project) -> str:
    """W&B's id of the study's Report, empty where there is none yet. One written by hand is left alone."""
    for report in project.api.reports(project.path):
        if report.display_name == report_title(study) and is_made_here(report.description, study):
            return str(report.id)
    return ""
