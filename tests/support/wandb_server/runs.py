"""The stand-in's answers about projects, runs, their history and their files."""

import json
from typing import Any
from urllib.parse import quote

from support.wandb_server.artifacts import project_fields
from support.wandb_server.graphql import Arguments, Resolver, Row, connection
from support.wandb_server.store import Run, Server, file_value
from support.wandb_server.views import project_views

# The client's names for the fields of a run.
NAMES = {
    "displayName": "display_name",
    "group": "group",
    "jobType": "job_type",
    "notes": "notes",
    "commit": "commit",
    "tags": "tags",
    "sweepName": "sweep",
    "state": "state",
}
WRITTEN = {**NAMES, "groupName": "group", "sweep": "sweep"}  # when sent, partly by other names


def roots(server: Server) -> dict[str, Resolver]:
    def project(given: Arguments) -> Row | None:
        return _project(server, given.get("name"))

    def made_project(given: Arguments) -> Row:
        server.project_facts(given["input"]["name"])
        return {"project": project(given["input"]), "model": project(given["input"]), "inserted": True}

    return {
        "viewer": lambda _: _viewer(server),
        "serverInfo": lambda _: {"features": []},
        "entity": lambda _: {},
        "project": project,
        "model": project,
        "models": lambda _: connection(_project(server, name) for name in server.projects),
        "upsertModel": made_project,
        "upsertBucket": lambda given: _upsert_run(server, given["input"]),
        "createRunFiles": lambda given: _create_files(server, given["input"]),
    }


def _viewer(server: Server) -> Row:
    own = {"name": server.entity, "username": server.entity, "entity": server.entity}
    return {"id": "user-1", **own, "flags": "{}"}


def _project(server: Server, name: str | None) -> Row | None:
    """Return a project by name, or None; the server answers with nothing for one that does not exist."""
    if name not in server.projects:
        return None

    def one(given: Arguments) -> Row | None:
        return next((_run(server, run) for run in runs if run.name == given["name"]), None)

    def chosen(given: Arguments) -> list[Row]:
        """Return the oldest first, the only order that poslab requests."""
        filters = json.loads(given.get("filters") or "{}")
        return [_run(server, run) for run in runs if _matches(run, filters)]

    runs = [run for run in server.runs.values() if run.project == name]
    return {
        **server.project_facts(name),
        **project_fields(server, name),
        "allViews": lambda given: project_views(server, name, given),
        "readOnly": False,
        "run": one,
        "bucket": one,
        "runCount": lambda given: len(chosen(given)),
        "runs": lambda given: connection(chosen(given)),
    }


def _matches(run: Run, filters: Row) -> bool:
    """Return whether the run matches a filter, of the kinds that poslab uses."""
    study = run.config.get("study")
    held = {"group": run.group, "jobType": run.job_type, "config.study": study, "config.study.value": study}

    def holds(key: str, asked: Any) -> bool:
        if key == "$or":
            return any(_matches(run, each) for each in asked)
        return held[key] in asked["$in"] if isinstance(asked, dict) else held[key] == asked

    return all(holds(key, asked) for key, asked in filters.items())


def _upsert_run(server: Server, given: Arguments) -> Row:
    run = next((run for run in server.runs.values() if run.key == given.get("id")), None)
    name = given.get("name") or f"run{len(server.runs) + 1:05}"
    inserted = run is None and name not in server.runs
    if run is None:
        run = server.runs.setdefault(name, Run(given["modelName"], name))
        run.state, run.exit_code = "running", None
    for sent, kept in WRITTEN.items():
        if given.get(sent) is not None:
            setattr(run, kept, given[sent])
    if given.get("config"):
        run.raw_config = json.loads(given["config"])
    return {"bucket": _run(server, run), "inserted": inserted}


def _run(server: Server, run: Run) -> Row:
    history = run.lines.get("wandb-history.jsonl", [])
    events = run.lines.get("wandb-events.jsonl", [])

    def files(given: Arguments) -> Row:
        names = [name for name in run.files if not given.get("names") or name in given["names"]]
        return connection(
            file_value(run.key, name, run.files[name], _place(server, run, name)) for name in names
        )

    return {
        "id": run.key,
        "name": run.name,
        "project": server.project_facts(run.project),
        "projectId": server.project_facts(run.project)["internalId"],
        **{name: getattr(run, kept) for name, kept in NAMES.items()},
        "user": _viewer(server),
        "config": json.dumps(run.raw_config),
        "wandbConfig": json.dumps({"t": run.raw_config.get("_wandb", {}).get("value", {}).get("t", {})}),
        "summaryMetrics": json.dumps(run.raw_summary),
        "historyLineCount": len(history),
        "eventsLineCount": len(events),
        "logLineCount": len(run.lines.get("output.log", [])),
        "historyTail": json.dumps(history[-1:]),
        "eventsTail": json.dumps(events[-1:]),
        "fileCount": len(run.files),
        "files": files,
    }


def _place(server: Server, run: Run, name: str) -> str:
    """Return the address of a file of a run."""
    return f"{server.address}/storage/run/{quote(run.name)}/{quote(name)}"


def _create_files(server: Server, given: Arguments) -> Row:
    run = server.run(given["runName"])
    files = [{"name": name, "uploadUrl": _place(server, run, name)} for name in given["files"]]
    return {"runID": run.key, "files": files}


def take_file(server: Server, path: str, content: bytes | None) -> bytes | None:
    """Return the run's file at `NAME/FILE`, after storing `content` there if it is given."""
    run_name, name = path.split("/", 1)
    files = server.run(run_name).files
    if content is not None:
        files[name] = content
    return files.get(name)


def take_stream(server: Server, name: str, sent: Row) -> Row:
    """Store what the client streams of a run: lines by place in each file, and the end of the run."""
    run = server.run(name)
    for file, part in (sent.get("files") or {}).items():
        lines = run.lines.setdefault(file, [])
        start, content = part["offset"], part["content"]
        lines.extend([""] * (start - len(lines)))
        lines[start : start + len(content)] = content
        if file == "wandb-summary.json":
            run.raw_summary = json.loads(content[-1])
    if sent.get("complete"):
        run.exit_code = sent.get("exitcode") or 0
        run.state = "finished" if run.exit_code == 0 else "failed"
    return {"exitcode": None, "limits": {}}
