"""Arguments that take effect, and the end of a command whose output is not read.

Arguments that are refused: config/test_mistakes.py.
"""

import os
import signal
from pathlib import Path

import pytest

from poslab.commands.hydra_arguments import check_hydra_arguments
from poslab.config.mistakes import read_arguments
from poslab.config.option_files import installed_conf
from support.commands import ROOT, called, environment, python, tiny
from support.forks import Forked
from support.texts import words


def test_a_word_after_an_option_is_not_a_command(tmp_path):
    told = called("train", "--help", "evaluate", cwd=tmp_path, script="poslab").stdout
    assert "evaluate.validation_windows" in told
    told = called("--help", "trainer", "evaluate", cwd=tmp_path).stdout
    assert "trainer.max_steps" in told
    assert "evaluate.validation_windows" in told
    refused = called("study=mine", "status", cwd=tmp_path, status=2)
    assert "status" in refused.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["-m", "pos=rope,alibi", "sweep=quickstart", "evaluate.rescale=[none,pi]", "reference=null"],
        ["--help", "-m"],
        ["--cfg", "hydra"],
        ["--cfg", "job", "--resolve", "pos=none", "hydra.sweeper.params.seed=1"],
        ["hydra.searchpath=[file://conf]", "+hydra.job.env_set.A=1", "hydra.job.env_copy=[HOME]"],
        ["-m", "hydra/launcher=poslab", "hydra/sweeper=poslab"],
    ],
)
def test_arguments_of_hydra_that_take_effect_are_accepted(arguments):
    check_hydra_arguments(arguments)
    read_arguments(arguments, installed_conf())


def test_a_path_may_begin_with_the_users_home(tmp_path):
    (tmp_path / "text.txt").write_text(words(20_000, 0))
    of_any_text = [
        item for item in tiny(trainer__max_steps=2) if not item.startswith(("data", "evaluate.val"))
    ]
    settings = [*of_any_text, "data=text", "data.vocabulary=bytes", "logger=local"]
    called("data.path=~/text.txt", "runs=~/kept", "reports='~/shown'", *settings, cwd=tmp_path)
    named = [f"data.path={tmp_path}/text.txt", f"runs={tmp_path}/kept", f"reports={tmp_path}/shown"]
    again = called(*named, *settings, cwd=tmp_path)
    assert "1 of 1 run" in again.stderr
    assert "1 done" in called("status", "runs=~/kept", cwd=tmp_path).stdout
    assert (tmp_path / "shown" / "ablation" / "index.html").exists()
    assert not (tmp_path / "~").exists()
    reported = python(str(ROOT / "report.py"), "runs=~/none", cwd=tmp_path, status=2)
    assert f"no records in {tmp_path}/none" in reported.stderr


def status_of_help(topic, output, folder):
    """Return the exit status and stderr of `--help TOPIC` in a process of its own."""
    with (folder / "error.txt").open("w+b") as error:
        arguments = [str(ROOT / "train.py"), "--help", topic]
        buffered = {**environment(folder), "PYTHONUNBUFFERED": ""}
        status = Forked(arguments, folder, buffered, output, error).wait(100)
        error.seek(0)
        return status, error.read()


@pytest.mark.parametrize(("topic", "status"), [("seed", 0), ("settings", 128 + signal.SIGPIPE)])
def test_a_closed_pipe_is_not_an_error(topic, status, tmp_path):
    """As with `| head -1`. One setting is written when the process ends, all of them before that."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as closed:
        assert status_of_help(topic, closed, tmp_path) == (status, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_output_to_a_full_disk_is_an_error(tmp_path):
    with open("/dev/full", "wb") as full:
        assert status_of_help("settings", full, tmp_path)[0] == 1


@pytest.mark.parametrize("end", ["commands.command_line import _leave", "study.run.worker import exit_with"])
def test_a_process_that_ends_at_once_leaves_no_temporary_folder(end, tmp_path):
    """W&B's client creates some for every run."""
    script = f"import tempfile; folder = tempfile.TemporaryDirectory(); from poslab.{end} as leave; leave(3)"
    python("-c", script, cwd=tmp_path, status=3)
    assert not [*(tmp_path / "tmp").iterdir()]
