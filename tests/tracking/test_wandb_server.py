"""W&B's real client against the stand-in: a new version that calls something else shows here."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import wandb
import wandb_workspaces.reports.v2 as reports
import wandb_workspaces.workspaces as workspaces
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


def test_a_run_arrives_with_what_was_logged(server, logged):
    assert (logged.project, logged.group, logged.job_type, logged.notes) == (
        "poslab",
        "study",
        "train",
        "why",
    )
    assert (logged.display_name, logged.tags) == ("alibi / flash / seed 1", ["alibi", "flash"])
    assert logged.config == {"pos": "alibi", "model": {"width": 64}}
    assert [row["tokens"] for row in logged.history[:3]] == [0, 10, 20]
    assert logged.summary["validation/loss"] == {"min": 1.0, "last": 2.0}
    assert logged.summary["status"] == "done"
    assert logged.files["record/manifest.json"] == b'{"status": "done"}'
    table = logged.history[3]["tables/x"]["path"]
    assert logged.files[table] == b'{"columns":["length","loss"],"data":[[64,1.5]]}'
    assert logged.files[logged.history[4]["picture"]["path"]].startswith(b"\x89PNG")
    assert (logged.state, logged.exit_code) == ("finished", 0)


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


def test_runs_are_read_back(server, logged, tmp_path):
    with online(server):
        api = wandb.Api()
        assert api.default_entity == "someone"
        assert [project.name for project in api.projects()] == ["poslab"]
        (found,) = api.runs("someone/poslab", filters={"group": "study", "config.model.width": {"$gt": 32}})
        assert (found.id, found.name, found.state) == ("first", logged.display_name, "finished")
        assert (found.group, found.job_type) == ("study", "train")
        assert (found.tags, found.notes) == (logged.tags, "why")
        assert found.config == logged.config
        assert found.summary["validation/loss"]["min"] == 1.0
        run = api.run("someone/poslab/first")
        assert [row["tokens"] for row in run.scan_history(keys=["tokens"])] == [0, 10, 20]
        assert [row["_step"] for row in run.scan_history()] == [0, 1, 2, 3, 4]
        assert len(run.history(samples=3, pandas=False)) == 3
        assert {file.name for file in run.files()} == logged.files.keys()
        with run.file("record/manifest.json").download(root=str(tmp_path)) as file:
            assert file.read() == '{"status": "done"}'


def test_what_is_not_there_is_an_error_of_the_client(server, logged):
    with online(server):
        api = wandb.Api()
        with pytest.raises(ValueError, match="Could not find project nothing"):
            list(api.runs("someone/nothing"))
        with pytest.raises(wandb.errors.CommError, match="Could not find run"):
            api.run("someone/poslab/nothing")


def _dataset(folder):
    (folder / "data.json").write_text('{"tokens": 60000}')
    dataset = wandb.Artifact("data-copy", type="dataset", metadata={"fingerprint": "abc"})
    dataset.add_file(str(folder / "data.json"), policy="immutable")
    return dataset


def _checkpoint(folder, content):
    (folder / "checkpoint.pkl").write_bytes(content)
    checkpoint = wandb.Artifact("checkpoint-x", type="model")
    checkpoint.add_file(str(folder / "checkpoint.pkl"), policy="immutable")
    return checkpoint


def test_artifacts_have_versions_aliases_makers_and_users(server, tmp_path):
    with online(server):
        for name, content in (("makes-1", b"one"), ("makes-2", b"two"), ("makes-3", b"two")):
            with wandb.init(**MINE, id=name, dir=tmp_path) as run:
                run.use_artifact(_dataset(tmp_path))
                run.log_artifact(_checkpoint(tmp_path, content), aliases=["latest", name])
        with wandb.init(**MINE, id="uses", dir=tmp_path) as run:
            assert run.use_artifact("checkpoint-x:latest").version == "v1"
        api = wandb.Api()
        latest = api.artifact("someone/poslab/checkpoint-x:latest")
        assert (latest.version, sorted(latest.aliases)) == ("v1", ["latest", "makes-2", "makes-3"])
        folder = latest.download(root=str(tmp_path / "down"))
        assert (Path(folder) / "checkpoint.pkl").read_bytes() == b"two"
        first = api.artifact("someone/poslab/checkpoint-x:makes-1")
        assert (first.version, first.logged_by().id) == ("v0", "makes-1")
        assert [run.id for run in latest.used_by()] == ["uses"]
        run = api.run("someone/poslab/makes-1")
        assert [made.name for made in run.logged_artifacts()] == ["checkpoint-x:v0"]
        assert [used.name for used in run.used_artifacts()] == ["data-copy:v0"]
        assert api.artifact("someone/poslab/data-copy:v0").metadata == {"fingerprint": "abc"}
        with pytest.raises(wandb.errors.CommError, match="not found in 'someone/poslab'"):
            api.artifact("someone/poslab/nothing:latest")
    assert server.artifacts["checkpoint-x:v0"].files == {"checkpoint.pkl": b"one"}
    assert server.runs["makes-3"].logged == [server.artifacts["checkpoint-x:v1"]]
    assert server.runs["uses"].used == [server.artifacts["checkpoint-x:v1"]]


def _run(server, command, **options):
    environment = {**os.environ, **server.environment}
    return subprocess.run(command, env=environment, capture_output=True, text=True, **options)


def test_offline_runs_are_synced_late(server, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_DATA_DIR", server.environment["WANDB_DATA_DIR"])
    for name in ("late-1", "late-2"):
        run = wandb.init(project="poslab", id=name, group="late", config={"seed": 1}, dir=tmp_path)
        run.log({"tokens": 1, "tables/x": wandb.Table(columns=["length"], data=[[64]])})
        (tmp_path / "manifest.json").write_text(name)
        run.save(str(tmp_path / "manifest.json"), base_path=str(tmp_path), policy="now")
        with pytest.raises(TypeError, match="offline"):
            run.use_artifact(_dataset(tmp_path))
        run.log_artifact(_checkpoint(tmp_path, b"two"))
        run.finish()
    wandb.teardown()
    parts = [str(part) for part in tmp_path.glob("wandb/offline-run-*")]
    sync = [Path(sys.executable).parent / "wandb", "sync", *parts]
    synced = _run(server, sync)
    assert synced.returncode == 0, synced.stderr
    assert "Skipped 2 synced run(s)" in _run(server, sync).stderr
    for name in ("late-1", "late-2"):
        run = server.runs[name]
        assert (run.group, run.state, run.config) == ("late", "finished", {"seed": 1})
        assert [row["tokens"] for row in run.history] == [1]
        assert run.files[run.history[0]["tables/x"]["path"]] == b'{"columns":["length"],"data":[[64]]}'
        assert run.files.keys() > {"config.yaml", "wandb-summary.json"}
        (model,) = (made for made in run.logged if made.type == "model")
        assert model.files == {"checkpoint.pkl": b"two"}


def test_a_workspace_is_saved_found_and_saved_again(server, logged):
    plot = reports.LinePlot(x="tokens", y=["validation/loss"])
    with online(server):
        made = workspaces.Workspace(
            entity="someone",
            project="poslab",
            name="study",
            sections=[workspaces.Section(name="losses", panels=[plot])],
            runset_settings=workspaces.RunsetSettings(groupby=[workspaces.Config("arm")]),
        ).save()
        found = workspaces.Workspace.from_url(made.url)
        assert [section.name for section in found.sections] == ["losses"]
        found.name = "study, again"
        assert found.save().url == made.url
        with pytest.raises(ValueError, match="not found in project"):
            workspaces.Workspace.from_url(made.url + "x")
    (view,) = (view for view in server.views.values() if view.type == "project-view")
    assert (view.display_name, view.saves) == ("study, again", 2)
    (section,) = view.spec["section"]["panelBankConfig"]["sections"]
    assert section["panels"][0]["config"]["metrics"] == ["validation/loss"]


def test_a_report_is_saved_found_and_saved_again(server, logged):
    runs = reports.Runset(entity="someone", project="poslab", name="study")
    with online(server):
        made = reports.Report(
            entity="someone",
            project="poslab",
            title="Study",
            blocks=[reports.H1("Losses"), reports.PanelGrid(runsets=[runs], panels=[reports.LinePlot()])],
        ).save()
        found = reports.Report.from_url(made.url)
        assert found.blocks[0].text == "Losses"
        found.title = "Study, again"
        found.save()
        (listed,) = wandb.Api().reports("someone/poslab")
        assert (listed.id, listed.display_name) == (made.id, "Study, again")
    (view,) = (view for view in server.views.values() if view.type == "runs")
    assert (view.display_name, view.saves) == ("Study, again", 2)
    assert view.spec["blocks"][1]["children"] == [{"text": "Losses"}]


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
