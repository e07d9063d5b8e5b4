"""Loggers beside W&B: of one file each, classes of Lightning by configuration, and objects."""

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pytorch_lightning.loggers import CSVLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import poslab
from support.commands import called, command, rows, start, tiny
from support.packages import documented
from support.processes import PATIENCE, descendants, kill
from support.runs import validation_losses
from support.tasks import until

ARGUMENTS = tiny(trainer__max_steps=20, evaluate__validations=5, evaluate__longest=2, logger="local")
OWN = "+logger.csv={_target_: pytorch_lightning.loggers.CSVLogger, save_dir: '{directory}/csv', name: mine}"


class Failing(CSVLogger):
    def log_metrics(self, *given: Any, **named: Any) -> None:
        raise OSError("the disk is gone")


def test_loggers_of_the_configuration_and_objects_have_the_curve_and_one_that_fails_ends_no_run(
    tmp_path, capsys
):
    loggers = [Failing(str(tmp_path), "failing"), CSVLogger(str(tmp_path), "whole")]
    run = poslab.train(poslab.compose(*ARGUMENTS, OWN), tmp_path / "mine", loggers=loggers)
    assert run.manifest.status == "done"
    printed = capsys.readouterr().err
    assert "Failing failed" in printed
    assert "OSError: the disk is gone" in printed
    table = run.table("metrics")
    losses = table.validation_nll / table.validation_tokens
    lengths = run.table("extrapolation").query("protocol == 'sliding' and multiple == 2")
    for folder in (run.path / "csv" / "mine", tmp_path / "whole"):
        logged = rows(folder / "version_0" / "metrics.csv")
        assert [row["step"] for row in logged] == ["4", "8", "12", "16", "20", "20"]
        assert [float(row["validation/loss"]) for row in logged[:-1]] == pytest.approx(list(losses))
        sliding = lengths.nll.sum() / lengths.tokens.sum()
        assert float(logged[-1]["summary/sliding_2x"]) == pytest.approx(sliding)
        assert "model.width: 32" in (folder / "version_0" / "hparams.yaml").read_text()
    plain = poslab.train(poslab.compose(*ARGUMENTS), tmp_path / "mine")
    assert plain.path == run.path  # what it is told to changes nothing in a run


@pytest.mark.parametrize(
    ("argument", "reason"),
    [
        ("+logger.csv={_target_: csv.DictReader, f: []}", "csv.DictReader is no pytorch_lightning.Logger"),
        ("+logger.csv={save_dir: here}", "csv names no class"),
    ],
)
def test_what_is_no_logger_is_refused(argument, reason, tmp_path):
    with pytest.raises(poslab.ConfigError, match=reason) as refused:
        poslab.train(poslab.compose(*ARGUMENTS, argument), tmp_path / "mine")
    assert "\n" not in str(refused.value)


def test_the_example_of_the_docs_as_a_file_of_the_user_s_own_is_a_logger(tmp_path):
    (tmp_path / "own.py").write_text(documented("src/poslab/loggers/table.py"))
    conf = tmp_path / "conf" / "logger"
    conf.mkdir(parents=True)
    (conf / "table.yaml").write_text(documented("conf/logger/table.yaml").replace("name: table", "name: own"))
    flags = ("--config-dir", str(conf.parent))
    assert "local, table, tensorboard, trackio, wandb" in called("--help", *flags, cwd=tmp_path).stdout
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


def test_tensorboard_is_one_and_says_what_it_needs(tmp_path, monkeypatch):
    arguments = [each for each in ARGUMENTS if each != "logger=local"] + ["logger=tensorboard"]
    with monkeypatch.context() as patch:
        patch.setattr("poslab.loggers.find_spec", lambda name: None)
        with pytest.raises(poslab.ConfigError, match="pip install tensorboard"):
            poslab.train(poslab.compose(*arguments), tmp_path / "mine")
    run = poslab.train(poslab.compose(*arguments), tmp_path / "mine")
    events = EventAccumulator(str(run.path / "tensorboard")).Reload()
    table = run.table("metrics")
    losses = [event.value for event in events.Scalars("validation/loss")]
    assert losses == pytest.approx(list(table.validation_nll / table.validation_tokens))
    assert events.Scalars("summary/sliding_2x")
    assert events.Scalars("summary/validation_loss")[0].value == pytest.approx(losses[-1])


def test_several_loggers_show_the_curve_once_after_two_kills(tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    arguments = tiny(trainer__max_steps=150, evaluate__validations=30, evaluate__longest=2, study="killed")
    for killed_after in (5, 15, None):
        output = tmp_path / "printed.txt"
        run = start(*arguments, "logger=[wandb,trackio,tensorboard]", cwd=tmp_path, output=output)
        try:
            if killed_after is None:
                run.wait(PATIENCE)
            else:
                until(lambda least=killed_after: len(curve(tmp_path)) >= least, command=run)
        finally:
            kill([*descendants(run.pid)[::-1], run.pid])
            run.wait()
    assert run.returncode == 0, output.read_text()
    expected = curve(tmp_path)
    assert len(expected) == 30
    (folder,) = tmp_path.glob("runs/killed/rope-*")
    in_trackio = list(trackio_losses(tmp_path / "trackio" / "poslab.db", f"killed/{folder.name}"))
    assert dict(in_trackio) == pytest.approx(expected)
    assert len(in_trackio) == 30
    events = EventAccumulator(str(folder / "tensorboard")).Reload().Scalars("validation/loss")
    assert {event.step: event.value for event in events} == pytest.approx(expected)
    assert len(events) == 30


def test_a_run_that_trackio_has_is_not_logged_again(tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    for place in ("here", "there"):
        made = command(*tiny(study="killed", runs=place, logger="trackio"), cwd=tmp_path)
        assert made.returncode == 0, made.stderr
    with sqlite3.connect(tmp_path / "trackio" / "poslab.db") as connection:
        assert list(connection.execute("SELECT step FROM metrics ORDER BY step")) == [(2,), (4,), (6,), (7,)]


def curve(place: Path) -> dict[int, float]:
    """The validation loss by step, as the record has it."""
    return next(map(validation_losses, place.glob("runs/killed/rope-*/metrics.csv")), {})


def trackio_losses(database: Path, run: str) -> Iterator[tuple[int, float]]:
    with sqlite3.connect(database) as connection:
        found = list(connection.execute("SELECT step, metrics FROM metrics WHERE run_name = ?", (run,)))
    logged = [(step, json.loads(metrics)) for step, metrics in found]
    assert [step for step, metrics in logged if "summary/sliding_2x" in metrics] == [151]
    for step, metrics in logged:
        if "validation/loss" in metrics:
            yield step, metrics["validation/loss"]
