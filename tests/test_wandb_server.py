"""W&B's real client against the stand-in: a new version that calls something else shows here."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import wandb
from wandb_server import online, served
from wandb_store import KEY

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
        run.log({"picture": wandb.Image(str(_picture(folder)))})
        run.summary["status"] = "done"
        run.save(str(folder / "record" / "manifest.json"), base_path=str(folder), policy="now")
        run.finish()
    return server.runs["first"]


def _picture(folder):
    from PIL import Image

    Image.new("RGB", (4, 4)).save(folder / "picture.png")
    return folder / "picture.png"


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


def _command(server, *arguments):
    reader = Path(sys.executable).parent / "wandb"
    environment = {**os.environ, **server.environment}
    return subprocess.run([reader, *arguments], env=environment, capture_output=True, text=True)


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
    synced = _command(server, "sync", *parts)
    assert synced.returncode == 0, synced.stderr
    assert "Skipped 2 synced run(s)" in _command(server, "sync", *parts).stderr
    for name in ("late-1", "late-2"):
        run = server.runs[name]
        assert (run.group, run.state, run.config) == ("late", "finished", {"seed": 1})
        assert [row["tokens"] for row in run.history] == [1]
        assert run.files[run.history[0]["tables/x"]["path"]] == b'{"columns":["length"],"data":[[64]]}'
        assert run.files.keys() > {"config.yaml", "wandb-summary.json"}
        (model,) = (made for made in run.logged if made.type == "model")
        assert model.files == {"checkpoint.pkl": b"two"}


def test_every_call_was_known(server):
    assert server.unknown == []
