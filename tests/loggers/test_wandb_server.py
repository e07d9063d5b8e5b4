"""W&B's real client against the stand-in: a new version that calls something else shows here."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
import wandb
from wandb.sdk.lib.service.service_connection import WandbApiFailedError

from support.wandb_server.server import agent_command, online, serve, served
from support.wandb_server.store import KEY

server = served("module")
MINE = {"project": "poslab", "entity": "someone"}


@pytest.fixture(scope="module")
def logged(server, tmp_path_factory):
    """A run of three rows with a table, a picture and a file that ended well."""
    folder = tmp_path_factory.mktemp("logged")
    (folder / "record").mkdir()
    (folder / "record" / "manifest.json").write_text('{"status": "done"}')
    with online(server):
        run = wandb.init(
            **MINE,
            id="first",
            name="alibi / flash / seed 1",
            group="study",
            job_type="train",
            tags=["alibi", "flash"],
            notes="why",
            config={"pos": "alibi", "model": {"width": 64}},
            resume="allow",
            dir=folder,
        )
        run.define_metric("validation/loss", step_metric="tokens", summary="min,last")
        for tokens, loss in ((0, 3.0), (10, 1.0), (20, 2.0)):
            run.log({"tokens": tokens, "validation/loss": loss})
        run.log({"tables/x": wandb.Table(columns=["length", "loss"], data=[[64, 1.5]])})
        run.log({"picture": wandb.Image(np.zeros((4, 4, 3), np.uint8))})
        run.summary["status"] = "done"
        run.save(str(folder / "record" / "manifest.json"), base_path=str(folder), policy="now")
        run.finish()
    return server.runs["first"]


def test_no_request_is_kept_with_the_key(server, logged):
    assert len(server.requests) > 5
    assert not any(KEY in str(seen) for seen in server.requests)


def test_a_resumed_run_goes_on_after_its_last_step(server, tmp_path):
    with online(server):
        for rows in (2, 1):
            run = wandb.init(**MINE, id="resumed", resume="allow", dir=tmp_path, config={str(rows): rows})
            for _ in range(rows):
                run.log({"tokens": rows})
            run.summary[f"rows {rows}"] = rows
            run.finish(exit_code=rows - 1)
    resumed = server.runs["resumed"]
    assert [(row["_step"], row["tokens"]) for row in resumed.history] == [(0, 2), (1, 2), (2, 1)]
    assert resumed.config == {"1": 1, "2": 2}
    assert {"rows 1", "rows 2"} < resumed.summary.keys()
    assert (resumed.state, resumed.exit_code) == ("finished", 0)


def test_what_is_not_there_is_an_error_of_the_client(server, logged):
    with online(server):
        api = wandb.Api()
        with pytest.raises(ValueError, match="Could not find project nothing"):
            list(api.runs("someone/nothing"))
        with pytest.raises(wandb.errors.CommError, match="Could not find run"):
            api.run("someone/poslab/nothing")


def _run(server, command, **options):
    environment = {**os.environ, **server.environment}
    return subprocess.run(command, env=environment, capture_output=True, text=True, **options)


TRAINS = """
import signal, sys, wandb
with wandb.init(project="elsewhere", id="own", config={"seed": 1}) as run:
    run.log({"loss": 1.0})
    if "waits=True" in sys.argv:
        signal.pause()
"""


def test_an_agent_runs_a_sweep_s_trials_and_stops_one(server, logged, tmp_path):
    (tmp_path / "trains.py").write_text(TRAINS)
    server.trials = [{"rate": 0.1, "waits": False}, {"rate": 0.2, "waits": True}]
    with online(server):
        name = wandb.sweep(
            {
                "program": "trains.py",
                "method": "bayes",
                "metric": {"name": "loss", "goal": "minimize"},
                "parameters": {"rate": {"min": 0.1, "max": 1.0}, "waits": {"values": [False, True]}},
                "command": ["${env}", sys.executable, "${program}", "${args_no_hyphens}"],
            },
            **MINE,
        )
        server.sweeps[name].stop = {f"{name}-2": 0}
        agent = _run(server, agent_command(f"someone/poslab/{name}", 2), cwd=tmp_path)
        assert agent.returncode == 0, agent.stderr
        sweep = wandb.Api().sweep(f"someone/poslab/{name}")
        assert sweep.config["metric"] == {"name": "loss", "goal": "minimize"}
        assert {run.id for run in sweep.runs} == {f"{name}-1", f"{name}-2"}
    first, second = server.runs[f"{name}-1"], server.runs[f"{name}-2"]
    assert (first.project, first.sweep, first.state) == ("poslab", name, "finished")
    assert first.config == {"seed": 1, "rate": 0.1, "waits": False}
    assert (second.config["rate"], second.state) == (0.2, "running")  # ended by SIGTERM, it says no more


def test_a_run_that_is_stopped_on_the_page_is_told_so(server, tmp_path):
    """Without `stop_fn` the client raises KeyboardInterrupt in the main thread."""
    told = threading.Event()
    with online(server):
        wandb.init(**MINE, id="stopped", dir=tmp_path).finish()
        server.runs["stopped"].stop = True
        settings = wandb.Settings(stop_fn=told.set)
        with wandb.init(**MINE, id="stopped", resume="allow", dir=tmp_path, settings=settings):
            assert told.wait(60)


def test_a_key_that_is_not_the_server_s_is_refused(server, tmp_path, monkeypatch):
    monkeypatch.setitem(server.environment, "WANDB_API_KEY", "9" * 40)
    with online(server), pytest.raises(wandb.errors.CommError, match="not logged in"):
        wandb.init(**MINE, id="refused", dir=tmp_path)
    assert "refused" not in server.runs


def test_what_the_stand_in_does_not_know_is_an_error_and_is_kept(tmp_path):
    with serve(tmp_path) as own, online(own):
        api = wandb.Api()._service_api
        with pytest.raises(WandbApiFailedError, match="does not know New: news"):
            api.execute_graphql("query New { viewer { id } news { text } }")
        assert api.execute_graphql("query Old { viewer { id shoe { size } } }")["viewer"]["shoe"] is None
        assert own.unknown == ["New: news"]
        assert own.missing == {"Old: query.viewer.shoe"}
