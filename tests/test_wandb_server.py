"""W&B's real client against the stand-in: a new version that calls something else shows here."""

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


def test_every_call_was_known(server):
    assert [call for call in server.unknown if "Artifact" not in call] == []
