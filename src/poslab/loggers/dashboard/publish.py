"""Save the workspace view and the Report in W&B, or in files if there is no login."""

import json
import os
from pathlib import Path

from wandb_workspaces.workspaces.internal import get_view_dict

from poslab.loggers.dashboard.contents import Contents
from poslab.loggers.dashboard.documents import (
    is_made_here,
    make_report,
    make_workspace,
    report_title,
    specification,
    view_name,
)
from poslab.loggers.dashboard.panels import identifier
from poslab.loggers.fetch.account import Account
from poslab.loggers.send.login import logged_in
from poslab.record.files import write_atomic

OFFLINE = ("offline", "disabled", "dryrun")  # values of WANDB_MODE


def why_offline() -> str | None:
    """Return why W&B is not used: WANDB_MODE forbids it, or there is no login; None if it is used."""
    mode = os.environ.get("WANDB_MODE", "")
    if mode in OFFLINE:
        return f"WANDB_MODE={mode}"
    return None if logged_in() else "no W&B login"


def publish(study: str, contents: Contents, account: Account) -> tuple[str, str]:
    """Save the view and the Report, replacing those of earlier calls; return their URLs."""
    projects = account.api.projects(account.entity)
    if account.project not in (project.name for project in projects):
        account.api.create_project(account.project, account.entity)
    view = make_workspace(study, contents, account.entity, account.project)
    view._internal_id = _view_id(study, account)
    view.save()
    report = make_report(study, contents, account.entity, account.project)
    report.id = _report_id(study, account)
    report.save()
    return view.url, report.url


def write_files(study: str, contents: Contents, project: str, entity: str | None, folder: Path) -> None:
    """Write the documents of `publish` to workspace.json and report.json, with reproducible bytes."""
    workspace = make_workspace(study, contents, entity or "", project)
    report = make_report(study, contents, "", "")  # its panels show the project that it is saved in
    where = {"project": project, **({"entity": entity} if entity else {})}
    for name, document, facts in (
        ("workspace", workspace, {"name": study, "view": view_name(study)}),
        ("report", report, {"title": report.title, "description": report.description}),
    ):
        written = {**where, **facts, "spec": specification(document)}
        write_atomic(folder / f"{name}.json", json.dumps(written, indent=2, ensure_ascii=False) + "\n")


def _view_id(study: str, account: Account) -> str:
    """Return the id of the study's view in W&B; "" if there is none yet."""
    try:
        view = get_view_dict(account.entity, account.project, identifier("view", study))
    except json.JSONDecodeError:
        raise
    except ValueError:  # the project exists, so the view does not
        return ""
    return str(view["id"])


def _report_id(study: str, account: Account) -> str:
    """Return the id of the study's Report in W&B; "" if there is none. Manual reports are skipped."""
    for report in account.api.reports(account.path):
        if report.display_name == report_title(study) and is_made_here(report.description, study):
            return str(report.id)
    return ""
