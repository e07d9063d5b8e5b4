"""Benchmarks are run by hand: with -m study the short ones run to their end."""

import subprocess
import sys

import pytest

from support.commands import ROOT


@pytest.mark.study
@pytest.mark.parametrize(
    "command",
    [
        "checkpoint.py",
        "evaluation.py pos=rope attention=flash rounds=2",
        "foreseen_times.py",
        "overhead.py rounds=1",
        "planning.py runs=4 finished=2",
        "report_time.py runs=25",
        f"startup.py before={ROOT} after={ROOT} rounds=1 commands=status",
        "steps.py logger=local trainer.max_steps=40 evaluate.validations=10",
        "tracking.py rounds=1 steps=16 commands=2",
    ],
    ids=lambda command: command.partition(".")[0],
)
def test_a_short_benchmark_runs_to_its_end(command, tmp_path):
    name, *arguments = command.split()
    ended = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / name, *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout
