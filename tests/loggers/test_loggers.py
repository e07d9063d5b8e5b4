"""Loggers beside W&B: of one file each, classes of Lightning by configuration, and objects."""

from pathlib import Path
from typing import Any

import pytest
from pytorch_lightning.loggers import CSVLogger

import poslab
from support.commands import ROOT, called, rows, tiny

ARGUMENTS = tiny(trainer__max_steps=20, evaluate__validations=5, evaluate__longest=2, logger="local")
OWN = "+logger.csv={_target_: pytorch_lightning.loggers.CSVLogger, save_dir: '{directory}/csv', name: mine}"


def test_a_logger_of_the_configuration_has_the_curve_and_the_figures(tmp_path: Path) -> None:
    run = poslab.train(poslab.compose(*ARGUMENTS, OWN), tmp_path / "mine")
    logged = rows(run.path / "csv" / "mine" / "version_0" / "metrics.csv")
    assert [row["step"] for row in logged] == ["4", "8", "12", "16", "20", "20"]
    table = run.table("metrics")
    losses = table.validation_nll / table.validation_tokens
    assert [float(row["validation/loss"]) for row in logged[:-1]] == pytest.approx(list(losses))
    lengths = run.table("extrapolation").query("protocol == 'sliding' and multiple == 2")
    assert float(logged[-1]["summary/sliding_2x"]) == pytest.approx(lengths.nll.sum() / lengths.tokens.sum())
    assert "model.width: 32" in (run.path / "csv" / "mine" / "version_0" / "hparams.yaml").read_text()
    plain = poslab.train(poslab.compose(*ARGUMENTS), tmp_path / "mine")
    assert plain.path == run.path  # what it is told to changes nothing in a run


def test_objects_are_loggers_too_and_one_that_fails_ends_no_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Failing(CSVLogger):
        def log_metrics(self, *given: Any, **named: Any) -> None:
            raise OSError("the disk is gone")

    loggers = [Failing(str(tmp_path), "failing"), CSVLogger(str(tmp_path), "whole")]
    run = poslab.train(poslab.compose(*ARGUMENTS), tmp_path / "mine", loggers=loggers)
    assert run.manifest.status == "done"
    printed = capsys.readouterr().err
    assert "Failing failed" in printed
    assert "OSError: the disk is gone" in printed
    assert len(rows(tmp_path / "whole" / "version_0" / "metrics.csv")) == 6


@pytest.mark.parametrize(
    ("argument", "reason"),
    [
        ("+logger.csv={_target_: csv.DictReader, f: []}", "csv.DictReader is no pytorch_lightning.Logger"),
        ("+logger.csv={save_dir: here}", "csv names no class"),
        ("+logger.csv={_target_: nowhere.Logger}", "logger.csv: "),
    ],
)
def test_what_is_no_logger_is_refused(argument: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(poslab.ConfigError, match=reason) as refused:
        poslab.train(poslab.compose(*ARGUMENTS, argument), tmp_path / "mine")
    assert "\n" not in str(refused.value)


def test_the_example_of_the_docs_as_a_file_of_the_user_s_own_is_a_logger(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "extending.md").read_text().partition("## Add a logger")[2]
    python, options = (
        page.partition(f"```{language}\n")[2].partition("```")[0] for language in ("python", "yaml")
    )
    (tmp_path / "own.py").write_text(python)
    conf = tmp_path / "conf" / "logger"
    conf.mkdir(parents=True)
    (conf / "table.yaml").write_text(options.replace("name: table", "name: own"))
    flags = ("--config-dir", str(conf.parent))
    assert "local, table, tensorboard, wandb" in called("--help", *flags, cwd=tmp_path).stdout
    settings = tiny(logger="[local,table]", study="x")
    refused = called(*settings, "logger.table.folder=0", *flags, cwd=tmp_path)
    (line,) = refused.stderr.splitlines()
    assert (refused.returncode, "logger.table.folder=0" in line) == (2, True)
    assert not (tmp_path / "runs").exists()
    made = called(*settings, *flags, cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    (metrics,) = tmp_path.glob("runs/x/rope-*/table/metrics.csv")
    *curve, last = rows(metrics)
    assert curve[-1]["validation/loss"]
    assert last["summary/sliding_1x"]


def test_tensorboard_is_one_and_says_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = [each for each in ARGUMENTS if each != "logger=local"] + ["logger=tensorboard"]
    with monkeypatch.context() as patch:
        patch.setattr("poslab.loggers.tensorboard.find_spec", lambda name: None)
        with pytest.raises(poslab.ConfigError, match="pip install tensorboard"):
            poslab.train(poslab.compose(*arguments), tmp_path / "mine")
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run = poslab.train(poslab.compose(*arguments), tmp_path / "mine")
    events = reader.EventAccumulator(str(run.path / "tensorboard")).Reload()
    table = run.table("metrics")
    losses = [event.value for event in events.Scalars("validation/loss")]
    assert losses == pytest.approx(list(table.validation_nll / table.validation_tokens))
    assert events.Scalars("summary/sliding_2x")
