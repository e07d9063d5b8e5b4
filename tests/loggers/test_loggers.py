"""Loggers other than W&B: of one file each, Lightning classes by configuration, and objects."""

import json
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pytorch_lightning.loggers import CSVLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import poslab
from support.commands import called, command, read, start, tiny
from support.packages import documented
from support.runs import make, stopped_at, validation_losses
from support.tasks import until

ARGUMENTS = tiny(trainer__max_steps=20, evaluate__validations=5, evaluate__longest=2, logger="local")
OWN = "+logger.csv={_target_: pytorch_lightning.loggers.CSVLogger, save_dir: '{directory}/csv', name: mine}"


class Failing(CSVLogger):
    def log_metrics(self, *given: Any, **named: Any) -> None:
        raise OSError("the disk is gone")


def test_all_loggers_have_the_curve_and_one_that_fails_does_not_end_the_run(tmp_path, capsys):
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
        logged = read(folder / "version_0" / "metrics.csv")
        assert [row["step"] for row in logged] == ["4", "8", "12", "16", "20", "20"]
        assert [float(row["validation/loss"]) for row in logged[:-1]] == pytest.approx(list(losses))
        sliding = lengths.nll.sum() / lengths.tokens.sum()
        assert float(logged[-1]["summary/sliding_2x"]) == pytest.approx(sliding)
        assert "model.width: 32" in (folder / "version_0" / "hparams.yaml").read_text()
    plain = poslab.train(poslab.compose(*ARGUMENTS), tmp_path / "mine")
    assert plain.path == run.path  # the run does not depend on the logger


def test_the_example_of_the_docs_works_as_a_users_file(tmp_path):
    (tmp_path / "own.py").write_text(documented("src/poslab/loggers/table.py"))
    conf = tmp_path / "conf" / "logger"
    conf.mkdir(parents=True)
    (conf / "table.yaml").write_text(documented("conf/logger/table.yaml").replace("name: table", "name: own"))
    flags = ("--config-dir", str(conf.parent))
    assert "local, table, tensorboard, trackio, wandb" in called("--help", *flags, cwd=tmp_path).stdout
    settings = tiny(logger="[local,table]", study="x")
    refused = called(*settings, "logger.table.folder=0", *flags, cwd=tmp_path, status=2)
    (line,) = refused.stderr.splitlines()
    assert "logger.table.folder=0" in line
    assert not (tmp_path / "runs").exists()
    called(*settings, *flags, cwd=tmp_path)
    (metrics,) = tmp_path.glob("runs/x/rope-*/table/metrics.csv")
    *curve, last = read(metrics)
    assert curve[-1]["validation/loss"]
    assert last["summary/sliding_1x"]


def test_tensorboard_names_its_requirement_and_shows_a_resumed_run_once(tmp_path, monkeypatch):
    arguments = tiny(logger="tensorboard", trainer__max_steps=20, evaluate__validations=5)
    with monkeypatch.context() as patch:
        patch.setattr("poslab.loggers.find_spec", lambda name: None)
        with pytest.raises(poslab.ConfigError, match="pip install tensorboard"):
            poslab.train(poslab.compose(*arguments), tmp_path)
    folder = stopped_at(10, poslab.compose(*arguments), tmp_path).directory
    make(poslab.compose(*arguments), tmp_path)
    events = EventAccumulator(str(folder / "tensorboard")).Reload()
    expected = validation_losses(folder / "metrics.csv")
    losses = [(event.step, pytest.approx(event.value)) for event in events.Scalars("validation/loss")]
    assert losses == [*expected.items()]
    assert events.Scalars("summary/sliding_2x")
    assert events.Scalars("summary/validation_loss")[0].value == pytest.approx(expected[20])


def test_trackio_has_a_killed_run_once_though_it_is_repeated_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    asked = tiny(study="killed", logger="trackio", trainer__max_steps=100, evaluate__validations=20)
    with start(*asked, cwd=tmp_path, output=tmp_path / "printed.txt") as killed:
        until(lambda: len(in_trackio(tmp_path)) > 2, command=killed)
    for place in ("runs", "elsewhere"):
        command(*asked, f"runs={place}", cwd=tmp_path)
    (folder,) = tmp_path.glob("runs/killed/rope-*")
    expected = validation_losses(folder / "metrics.csv")
    *curve, last = in_trackio(tmp_path)
    assert [row[:2] for row in curve] == [(f"killed/{folder.name}", step) for step in expected]
    assert [row[2]["validation/loss"] for row in curve] == pytest.approx([*expected.values()])
    assert (last[1], "summary/sliding_2x" in last[2]) == (101, True)


def in_trackio(folder: Path) -> list[tuple[str, int, dict[str, float]]]:
    """The run, step and values of each row, if there are any yet."""
    found = "SELECT run_name, step, metrics FROM metrics ORDER BY step"
    with suppress(sqlite3.OperationalError), sqlite3.connect(folder / "trackio" / "poslab.db") as database:
        return [(run, step, json.loads(values)) for run, step, values in database.execute(found)]
    return []
