"""The stand-in's answers about views: workspaces (type `project-view`) and reports (`runs`, `runs/draft`)."""

import base64
import json
from typing import Any

from support.wandb_server.graphql import Arguments, Refused, Resolver, connection
from support.wandb_server.store import LONG_AGO, Server, View

Row = dict[str, Any]


def roots(server: Server) -> dict[str, Resolver]:
    return {"upsertView": lambda given: _upsert(server, given["input"])}


def project_views(server: Server, entity: str, project: str, given: Arguments) -> Row:
    """The views of one type, reports where none is given, and of one name if one is given."""
    kept = [
        view
        for view in server.views.values()
        if (view.entity, view.project, view.type) == (entity, project, given.get("viewType") or "runs")
        and given.get("viewName") in (None, view.name)
    ]
    return connection(_view(server, view) for view in kept)


def _upsert(server: Server, given: Row) -> Row:
    """What has no id is new, whatever its name."""
    inserted = not given.get("id")
    if inserted:
        entity, project = given.get("entityName") or server.entity, str(given.get("projectName"))
        if (entity, project) not in server.projects:
            raise Refused(f"project {entity}/{project} not found during upsertView", 404)
        key = base64.b64encode(f"View:{len(server.views) + 1}".encode()).decode()
        server.views[key] = View(key, entity, project, given["type"], given["name"])
    view = server.views.get(given.get("id") or key)
    if view is None:
        raise Refused(f"view {given['id']} not found", 404)
    view.name = given.get("name") or view.name
    view.display_name = given.get("displayName") or view.display_name
    view.description = given.get("description") or ""
    view.type = given.get("type") or view.type
    view.spec = json.loads(given["spec"])
    view.saves += 1
    return {"view": _view(server, view), "inserted": inserted}


def _view(server: Server, view: View) -> Row:
    return {
        "__typename": "View",
        "id": view.key,
        "type": view.type,
        "name": view.name,
        "displayName": view.display_name,
        "description": view.description,
        "project": server.project_facts(view.entity, view.project),
        "user": {"username": server.entity},
        "spec": json.dumps(view.spec),
        "createdAt": LONG_AGO,
        "updatedAt": LONG_AGO,
    }
