"""Save the workspace view and the Report in W&B."""

import json

from wandb_workspaces.workspaces.internal import get_view_dict

from poslab.loggers.dashboard.contents import Contents
from poslab.loggers.dashboard.documents import (
    is_made_here,
    make_report,
    make_workspace,
    report_title,
    view_id,
)
from poslab.loggers.fetch.account import Account


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


def _view_id(study: str, account: Account) -> str:
    """Return the id of the study's view in W&B; "" if there is none yet."""
    try:
        view = get_view_dict(account.entity, account.project, view_id(study))
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
