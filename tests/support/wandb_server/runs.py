"""The stand-in's answers about projects, runs, their history and their files."""

import json
from typing import Any
from urllib.parse import quote

from support.wandb_server.artifacts import project_fields, run_facts
from support.wandb_server.graphql import Arguments, Refused, Resolver, connection
from support.wandb_server.store import LONG_AGO, Run, Server, file_value
from support.wandb_server.views import project_views

Row = dict[str, Any]


def roots(server: Server) -> dict[str, Resolver]:
    return {
        "viewer": lambda _: viewer(server),
        "serverInfo": lambda _: {"features": []},
        "entity": lambda given: _entity(server, given["name"]),
        "project": lambda given: project(server, given.get("entityName"), given.get("name")),
        "model": lambda given: project(server, given.get("entityName"), given.get("name")),
        "models": lambda given: _projects(server, given),
        "upsertModel": lambda given: _upsert_project(server, given["input"]),
        "upsertBucket": lambda given: _upsert_run(server, given["input"]),
        "createRunFiles": lambda given: _create_files(server, given["input"]),
    }


def viewer(server: Server) -> Row:
    return {
        "__typename": "User",
        "id": "user-1",
        "name": server.entity,
        "username": server.entity,
        "email": f"{server.entity}@example.org",
        "entity": server.entity,
        "flags": "{}",
        "teams": connection([]),
    }


def _entity(server: Server, name: str) -> Row | None:
    if name != server.entity:
        return None
    about = {"id": f"entity-{name}", "name": name, "isTeam": False}
    return {**about, "user": viewer(server)}


def project(server: Server, entity: str | None, name: str | None) -> Row | None:
    """A project by name, or none: the server gives the client an empty answer for one that is not there."""
    entity = entity or server.entity
    if name is None or (entity, name) not in server.projects:
        return None
    runs = [run for run in server.kept_runs.values() if (run.entity, run.project) == (entity, name)]

    def one(given: Arguments) -> Row | None:
        return next((_run(server, run) for run in runs if run.name == given["name"]), None)

    def chosen(given: Arguments) -> list[Run]:
        """The oldest first, which is the only order that poslab asks for."""
        return [run for run in runs if _matches(run, json.loads(given.get("filters") or "{}"))]

    return {
        **server.project_facts(entity, name),
        **project_fields(server, entity, name),
        "allViews": lambda given: project_views(server, entity, name, given),
        "createdAt": LONG_AGO,
        "isBenchmark": False,
        "readOnly": False,
        "user": viewer(server),
        "run": one,
        "bucket": one,
        "runCount": lambda given: len(chosen(given)),
        "runs": lambda given: connection(_run(server, run) for run in chosen(given)),
    }


def _matches(run: Run, filters: dict[str, Any]) -> bool:
    """Whether a filter names the run: of the client's, those that poslab gives."""
    held = {
        "group": run.group,
        "jobType": run.job_type,
        "config.study": run.config.get("study"),
        "config.study.value": run.config.get("study"),
    }

    def holds(key: str, asked: Any) -> bool:
        if key == "$or":
            return any(_matches(run, each) for each in asked)
        if key not in held:
            raise LookupError(f"a filter {key!r}")
        return held[key] in asked["$in"] if isinstance(asked, dict) else held[key] == asked

    return all(holds(key, asked) for key, asked in filters.items())


def _projects(server: Server, given: Arguments) -> Row:
    names = [name for entity, name in server.projects if entity == (given.get("entityName") or server.entity)]
    return connection(project(server, given.get("entityName"), name) for name in names)


def _upsert_project(server: Server, given: Arguments) -> Row:
    entity = _own_entity(server, given.get("entityName"), "upsertModel")
    inserted = (entity, given["name"]) not in server.projects
    server.project_number(entity, given["name"])
    made = project(server, entity, given["name"])
    return {"project": made, "model": made, "inserted": inserted}


def _own_entity(server: Server, entity: str | None, field: str) -> str:
    if entity not in (None, "", server.entity):
        raise Refused(f"entity {entity} not found during {field}", 404)
    return server.entity


def _upsert_run(server: Server, given: Arguments) -> Row:
    run = server.kept_runs.get(given.get("id") or "")
    inserted = False
    if run is None:
        entity = _own_entity(server, given.get("entityName"), "upsertBucket")
        project_name = given.get("modelName") or "uncategorized"
        server.project_number(entity, project_name)
        number = len(server.kept_runs) + 1
        fresh = Run(entity, project_name, given.get("name") or f"run{number:05}", number)
        inserted = fresh.key not in server.kept_runs
        run = server.kept_runs.setdefault(fresh.key, fresh)
        run.state, run.exit_code = "running", None
    given_names = {
        "displayName": "display_name",
        "groupName": "group",
        "jobType": "job_type",
        "notes": "notes",
        "commit": "commit",
        "tags": "tags",
        "sweep": "sweep",
        "state": "state",
    }
    for sent, kept in given_names.items():
        if given.get(sent) is not None:
            setattr(run, kept, given[sent])
    run.display_name = run.display_name or f"dummy-run-{run.number}"
    if given.get("config"):
        run.raw_config = json.loads(given["config"])
    return {"bucket": _run(server, run), "inserted": inserted}


def _run(server: Server, run: Run) -> Row:
    history = run.lines.get("wandb-history.jsonl", [])
    events = run.lines.get("wandb-events.jsonl", [])
    keys = {key for row in run.history for key in row}

    def files(given: Arguments) -> Row:
        names = [name for name in run.files if not given.get("names") or name in given["names"]]
        return connection(
            file_value(run.key, name, run.files[name], _place(server, run, name)) for name in names
        )

    return {
        **run_facts(server, run),
        "projectId": str(server.project_number(run.entity, run.project)),
        "displayName": run.display_name,
        "notes": run.notes,
        "tags": run.tags,
        "group": run.group,
        "jobType": run.job_type,
        "sweepName": run.sweep,
        "state": run.state,
        "commit": run.commit,
        "readOnly": False,
        "createdAt": LONG_AGO,
        "heartbeatAt": LONG_AGO,
        "user": viewer(server),
        "config": json.dumps(run.raw_config),
        "wandbConfig": json.dumps({"t": run.raw_config.get("_wandb", {}).get("value", {}).get("t", {})}),
        "summaryMetrics": json.dumps(run.raw_summary),
        "systemMetrics": events[-1] if events else "{}",
        "historyLineCount": len(history),
        "eventsLineCount": len(events),
        "logLineCount": len(run.lines.get("output.log", [])),
        "historyTail": json.dumps(history[-1:]),
        "eventsTail": json.dumps(events[-1:]),
        "historyKeys": {"lastStep": _last_step(run), "keys": {key: {} for key in sorted(keys)}},
        "fileCount": len(run.files),
        "files": files,
    }


def _last_step(run: Run) -> int:
    return max((row.get("_step", -1) for row in run.history), default=-1)


def _place(server: Server, run: Run, name: str) -> str:
    """The address of a file of a run."""
    return f"{server.address}/storage/run/{quote(run.path)}/{quote(name)}"


def _create_files(server: Server, given: Arguments) -> Row:
    run = server.run(given.get("entityName"), given.get("projectName"), given["runName"])
    files = [{"name": name, "uploadUrl": _place(server, run, name)} for name in given["files"]]
    return {"runID": run.key, "uploadHeaders": [], "files": files}


def take_file(server: Server, path: str, content: bytes | None) -> bytes | None:
    """The run's file at `ENTITY/PROJECT/NAME/FILE`, after putting `content` there if there is any."""
    entity, project_name, run_name, name = path.split("/", 3)
    files = server.run(entity, project_name, run_name).files
    if content is not None:
        files[name] = content
    return files.get(name)


def take_stream(server: Server, path: str, sent: Row) -> Row:
    """What the client streams of a run: lines at their place in each file, and how the run ended."""
    run = server.run(*path.split("/", 2))
    for name, part in (sent.get("files") or {}).items():
        lines = run.lines.setdefault(name, [])
        start, content = part["offset"], part["content"]
        lines.extend([""] * (start - len(lines)))
        lines[start : start + len(content)] = content
        if name == "wandb-summary.json":
            run.raw_summary = json.loads(content[-1])
    if sent.get("complete"):
        run.exit_code = sent.get("exitcode") or 0
        run.state = "finished" if run.exit_code == 0 else "failed"
    return {"exitcode": None, "limits": {}}
