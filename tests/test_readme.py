"""What the README promises, tried: its table of pairs, and its own example of a new scheme."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from commands import TINY, rows
from conftest import ATTENTIONS, CONF, make_gpt

import poslab.positions
from poslab.config import ConfigError
from poslab.grid import grid
from poslab.positions import Geometry, build_scheme

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


@pytest.fixture
def example():
    """The README's Python and YAML files: (path, content) each."""
    return [
        re.search(rf"```{language}\n# (\S+)\n(.*?)```", README, re.DOTALL).groups()
        for language in ("python", "yaml")
    ]


def test_the_table_of_pairs_is_what_the_code_does():
    table = re.search(r"<!-- grid -->\n(.*?)<!-- /grid -->", README, re.DOTALL)[1]
    assert table == grid(CONF)


def test_a_new_scheme_follows_the_formula_and_is_refused_where_it_has_none(example, tmp_path, monkeypatch):
    (path, python), (_, options) = example
    (tmp_path / Path(path).name).write_text(python)
    monkeypatch.setattr(poslab.positions, "__path__", [*poslab.positions.__path__, str(tmp_path)])
    arm = yaml.safe_load(options)
    bias = build_scheme(arm, Geometry(32, 4, 64, layers=4)).bias(torch.arange(5))
    torch.testing.assert_close(bias, -torch.log1p(torch.arange(5).double()).expand(4, 5))
    tokens = torch.arange(40)[None] % 50
    softmax, flash = (make_gpt(arm, ATTENTIONS[name])(tokens) for name in ("softmax", "flash"))
    torch.testing.assert_close(softmax, flash, atol=1e-9, rtol=1e-9)
    with pytest.raises(ConfigError, match="never becomes geometric"):
        make_gpt(arm, ATTENTIONS["linear"])


def test_one_python_file_and_one_yaml_file_are_trained_evaluated_and_reported(example, tmp_path):
    """In a copy of the project, with nothing else changed, by the command that the README gives."""
    for name in ("src", "conf", "train.py"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    for path, content in example:
        (tmp_path / path).write_text(content)
    ended = subprocess.run(
        [sys.executable, "train.py", "-m", "pos=rope,logarithmic", "logger=local", *TINY],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "src")},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stderr
    report = tmp_path / "reports" / "ablation"
    made = {row["pos"]: row for row in rows(report / "summary.csv")}["logarithmic"]
    assert made["status"] == "done"
    assert made["kernel"] == "strips"
    assert float(made["loss_8x"]) > 0
    assert "logarithmic" in (report / "index.html").read_text()
    assert "logarithmic" in (report / "report.md").read_text()
