"""The stand-in's answers about views: workspaces (type `project-view`) and reports (`runs`)."""

import base64
import json

from support.wandb_server.graphql import Arguments, Refused, Resolver, Row, connection
from support.wandb_server.store import Server, View


def roots(server: Server) -> dict[str, Resolver]:
    return {"upsertView": lambda given: _upsert(server, given["input"])}


def project_views(server: Server, project: str, given: Arguments) -> Row:
    """Return the views of one type, by default reports, with one name if one is given."""
    asked = project, given.get("viewType") or "runs"
    kept = [view for view in server.views.values() if (view.project, view.type) == asked]
    return connection(_view(server, view) for view in kept if given.get("viewName") in (None, view.name))


def _upsert(server: Server, given: Row) -> Row:
    """Store a view; one without an id is new, whatever its name."""
    key = given.get("id")
    if not key:
        project = given["projectName"]
        if project not in server.projects:
            raise Refused(f"project {project} not found during upsertView", 404)
        key = base64.b64encode(f"View:{len(server.views) + 1}".encode()).decode()
        server.views[key] = View(key, project, given["type"], given["name"])
    view = server.views[key]
    view.name = given.get("name") or view.name
    view.display_name = given.get("displayName") or view.display_name
    view.description = given.get("description") or ""
    view.type = given.get("type") or view.type
    view.spec = json.loads(given["spec"])
    view.saves += 1
    return {"view": _view(server, view), "inserted": not given.get("id")}


def _view(server: Server, view: View) -> Row:
    return {
        "id": view.key,
        "type": view.type,
        "name": view.name,
        "displayName": view.display_name,
        "description": view.description,
        "project": server.project_facts(view.project),
        "user": {"username": server.entity},
        "spec": json.dumps(view.spec),
    }
