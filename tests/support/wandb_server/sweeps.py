"""The stand-in's answers about sweeps and their agents: it hands out the trials that a test has given."""

import json
from collections.abc import Callable
from typing import Any

import yaml  # type: ignore[import-untyped]

from support.wandb_server.graphql import Arguments, Refused, Resolver, connection
from support.wandb_server.store import Run, Server, Sweep

Row = dict[str, Any]
LONG_AGO = "2026-01-01T00:00:00"


def roots(server: Server) -> dict[str, Resolver]:
    return {
        "upsertSweep": lambda given: _upsert(server, given["input"]),
        "createAgent": lambda given: _create_agent(server, given["input"]),
        "agentHeartbeat": lambda given: _beat(server, given["input"]),
    }


def project_fields(server: Server, entity: str, project: str, tell: Callable[[Run], Row]) -> Row:
    """A project's sweeps; `tell` says what a run answers."""
    kept = [each for each in server.sweeps.values() if (each.entity, each.project) == (entity, project)]

    def one(given: Arguments) -> Row | None:
        return next((_sweep(server, each, tell) for each in kept if each.name == given["sweepName"]), None)

    return {"sweep": one}


def _upsert(server: Server, given: Row) -> Row:
    sweep = next((each for each in server.sweeps.values() if each.key == given.get("id")), None)
    if sweep is None:
        entity, project = (
            given.get("entityName") or server.entity,
            given.get("projectName") or "uncategorized",
        )
        server.project_number(entity, project)
        config = yaml.safe_load(given["config"])
        name = f"sweep{len(server.sweeps) + 1:03}"
        trials = list(server.trials)
        sweep = server.sweeps[name] = Sweep(entity, project, name, config, given["config"], trials)
    sweep.state = given.get("state") or sweep.state
    return {"sweep": _facts(server, sweep), "configValidationWarnings": []}


def _create_agent(server: Server, given: Row) -> Row:
    if given["sweep"] not in server.sweeps:
        raise Refused(f"sweep {given['sweep']} not found", 404)
    key = f"agent-{len(server.agents) + 1}"
    server.agents[key] = given["sweep"]
    return {"agent": {"id": key}}


def _beat(server: Server, given: Row) -> Row:
    """One command a heartbeat: stop the runs that are to stop, else a trial for an agent without a run."""
    sweep = server.sweeps[server.agents[given["id"]]]
    running = json.loads(given.get("runState") or "{}")
    stopping = [name for name in running if _stops(server, sweep, name)]
    if stopping:
        commands = [{"type": "stop", "run_id": name} for name in stopping]
    elif running:
        commands = []
    elif sweep.handed < len(sweep.trials) and sweep.state in ("PENDING", "RUNNING"):
        sweep.state = "RUNNING"
        sweep.handed += 1
        arguments = {name: {"value": value} for name, value in sweep.trials[sweep.handed - 1].items()}
        name = f"{sweep.name}-{sweep.handed}"
        commands = [
            {"type": "run", "run_id": name, "program": sweep.config.get("program"), "args": arguments}
        ]
    else:
        sweep.state = "FINISHED"
        commands = [{"type": "exit"}]
    return {"agent": {"id": given["id"]}, "commands": json.dumps(commands)}


def _stops(server: Server, sweep: Sweep, name: str) -> bool:
    """Whether a run has come as far as a test lets it."""
    run = server.runs.get(name)
    return run is not None and len(run.history) >= sweep.stop.get(name, 10**9)


def _sweep(server: Server, sweep: Sweep, tell: Callable[[Run], Row]) -> Row:
    runs = [run for run in server.kept_runs.values() if run.sweep == sweep.name]
    return {
        **_facts(server, sweep),
        "runs": lambda given: connection([tell(run) for run in runs], given),
    }


def _facts(server: Server, sweep: Sweep) -> Row:
    return {
        "__typename": "Sweep",
        "id": sweep.key,
        "name": sweep.name,
        "project": server.project_facts(sweep.entity, sweep.project),
        "method": sweep.config.get("method"),
        "state": sweep.state,
        "config": sweep.text,
        "createdAt": LONG_AGO,
        "updatedAt": LONG_AGO,
        "heartbeatAt": LONG_AGO,
        "earlyStopJobRunning": False,
    }
