"""Models read from W&B are evaluated and reported like the run's directory, or refused."""

import pytest
import wandb

from poslab.commands import evaluate, report
from poslab.record.manifest import read_manifest
from support.commands import assert_refused, read
from support.records import contents
from support.runs import TRACKED, make, request
from support.texts import options
from support.wandb_server.server import online, served

server = served("module")
SHORT = {"trainer__max_steps": 4, "trainer__warmup_steps": 1, "model__layers": 1}


@pytest.fixture(scope="module")
def run(server, tmp_path_factory):
    """A finished run with its record and its model in W&B."""
    runs = tmp_path_factory.mktemp("models") / "runs"
    with online(server):
        manifest = make(request(study="models", logger=TRACKED, **SHORT), runs)
    return runs / "models" / manifest.run


def made(folder):
    (directory,) = (folder / "evaluations").glob("[!.]*")
    return directory


def test_a_model_of_wandb_is_evaluated_in_a_new_run(server, run, run_command, tmp_path):
    before = set(server.runs)
    for again in (False, True):
        status, out, err = run_command(evaluate.main, f"checkpoint=checkpoint-{run.name}:latest")
        assert status == 0, err
        assert "the same numbers, to the last digit, as the run's own record" in out
        assert ("has the same evaluation" in err) == again
    assert read(made(tmp_path) / "extrapolation.csv") == read(run / "extrapolation.csv")
    (number,) = set(server.runs) - before
    evaluated = server.runs[number]
    assert (evaluated.job_type, evaluated.group, evaluated.state) == ("evaluate", "models", "finished")
    assert evaluated.used == [server.artifacts[f"checkpoint-{run.name}:v0"]]
    record = {name: content for name, content in evaluated.files.items() if name.startswith("record/")}
    for name in read_manifest(made(tmp_path)).files:
        assert record[f"record/{name}"] == (made(tmp_path) / name).read_bytes()
    logged = [row for row in evaluated.history if "extrapolation/loss" in row]
    assert len(logged) == len({row["length"] for row in read(run / "extrapolation.csv")})
    assert read_manifest(made(tmp_path)).wandb.id == number


def test_without_a_server_the_evaluation_is_stored_for_later(run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)  # WANDB_MODE is offline in tests
    assert evaluate.main([f"checkpoint={run}", "logger=wandb"]) == 0
    wandb.teardown()
    (kept,) = made(tmp_path).glob("wandb/offline-run-*")
    assert f"wandb sync {kept.relative_to(tmp_path)}" in capsys.readouterr().out


def test_a_report_by_model_equals_that_by_directory(server, run, run_command, tmp_path):
    assert run_command(report.main, f"checkpoint={run}", "reports=local")[0] == 0
    for name in (f"checkpoint-{run.name}:v0", f"someone/poslab/checkpoint-{run.name}:latest"):
        status, _, err = run_command(report.main, f"checkpoint={name}", f"reports={name[:3]}")
        assert status == 0, err
        assert contents(tmp_path / name[:3]) == contents(tmp_path / "local")


def log(server, manifest, **checkpoints):
    """Log artifacts of the two files; a checkpoint given as text is a reference to a file."""
    folder, silent = server.environment["WANDB_DATA_DIR"], wandb.Settings(silent=True)
    with online(server), wandb.init(project="poslab", dir=folder, settings=silent) as run:
        for name, checkpoint in checkpoints.items():
            artifact = wandb.Artifact(name, type="model")
            artifact.add_file(manifest)
            if isinstance(checkpoint, str):
                artifact.add_reference(checkpoint, name="checkpoint.pt")
            elif checkpoint:
                with artifact.new_file("checkpoint.pt", mode="wb") as opened:
                    opened.write(checkpoint)
            run.log_artifact(artifact).wait()


def test_artifacts_that_are_not_models_of_a_run_are_refused_in_one_line(server, run, run_command, tmp_path):
    path = run / "checkpoint.pt"
    damaged = path.read_bytes()[:-1]
    log(server, run / "manifest.json", tables=None, damaged=damaged, elsewhere=f"file://{path}")
    for name, expected in (
        ("tables:latest", "someone/poslab/tables:v0 has no checkpoint.pt of a run"),
        ("damaged:latest", "checkpoint.pt is damaged"),
        ("elsewhere:latest", "someone/poslab/elsewhere:v0 has no checkpoint.pt of a run"),
        ("nothing:latest", "W&B has no artifact someone/poslab/nothing:latest"),
    ):
        assert_refused(run_command(evaluate.main, f"checkpoint={name}"), expected)
    assert_refused(run_command(report.main, "checkpoint=tables:v0"), "has no record")
    assert not (tmp_path / "evaluations").exists()


def test_a_model_with_a_tokenizer_is_fetched_with_it(server, run_command, tmp_path):
    data = options("copy", tokens=60_000, vocabulary=260)
    with online(server):
        manifest = make(request(study="tokens", logger=TRACKED, **SHORT, data=data), tmp_path / "runs")
    name = f"checkpoint-{manifest.run}:latest"
    status, _, err = run_command(evaluate.main, f"checkpoint={name}", "data.seed=1", "logger=local")
    assert status == 0, err
    assert read_manifest(made(tmp_path)).data.vocabulary == 260
