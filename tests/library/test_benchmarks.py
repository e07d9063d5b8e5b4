"""Benchmarks are run by hand: their imports from poslab exist, and with -m study the short ones run."""

import ast
import importlib
import subprocess
import sys

import pytest

from support.commands import ROOT

BENCHMARKS = sorted((ROOT / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("path", BENCHMARKS, ids=lambda path: path.stem)
def test_imports_of_benchmarks_exist(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("poslab"):
            module = importlib.import_module(str(node.module))
            for name in node.names:
                if not hasattr(module, name.name):
                    importlib.import_module(f"{node.module}.{name.name}")


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
