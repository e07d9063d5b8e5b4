"""What the pages promise of the code, tried: the table of pairs, the example of a new scheme, the map."""

import importlib
import re
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
import torch
import yaml

import poslab.model.positions
from poslab.config.option_files import Conf
from poslab.config.schema import ConfigError, PairError
from poslab.model.pairs import grid
from poslab.model.positions import Geometry, build_scheme
from support.commands import ROOT, TINY, environment, rows
from support.forks import forked
from support.models import ATTENTIONS, CONF, POSITIONS, make_gpt

SCHEMES = (ROOT / "docs" / "schemes.md").read_text()
EXTENDING = (ROOT / "docs" / "extending.md").read_text()


@pytest.fixture
def example():
    """The Python and YAML files of the new scheme: (path, content) each."""
    return [
        re.search(rf"```{language}\n# (\S+)\n(.*?)```", EXTENDING, re.DOTALL).groups()
        for language in ("python", "yaml")
    ]


def test_the_table_of_pairs_is_what_the_code_does():
    table = re.search(r"<!-- grid -->\n(.*?)<!-- /grid -->", SCHEMES, re.DOTALL)[1]
    assert table == grid(Conf((CONF,)))


def test_a_new_scheme_follows_the_formula_and_is_refused_where_it_has_none(example, tmp_path, monkeypatch):
    (path, python), (_, options) = example
    (tmp_path / Path(path).name).write_text(python)
    monkeypatch.setattr(poslab.model.positions, "__path__", [*poslab.model.positions.__path__, str(tmp_path)])
    arm = yaml.safe_load(options)
    bias = build_scheme(arm, Geometry(32, 4, 64, layers=4)).bias(torch.arange(5))
    torch.testing.assert_close(bias, -torch.log1p(torch.arange(5).double()).expand(4, 5))
    tokens = torch.arange(40)[None] % 50
    softmax, flash = (make_gpt(arm, ATTENTIONS[name])(tokens) for name in ("softmax", "flash"))
    torch.testing.assert_close(softmax, flash, atol=1e-9, rtol=1e-9)
    with pytest.raises(ConfigError, match="never becomes geometric"):
        make_gpt(arm, ATTENTIONS["linear"])


def test_the_example_of_a_mixer_refuses_every_scheme_that_would_act_inside_it(tmp_path, monkeypatch):
    python = re.search(r"```python\n# \S+/attention/mean.py\n(.*?)```", EXTENDING, re.DOTALL)[1]
    (tmp_path / "mean_of_the_page.py").write_text(python)
    monkeypatch.syspath_prepend(tmp_path)
    served = []
    for name, section in POSITIONS.items():
        with suppress(PairError):
            make_gpt(section, {"kind": "mean_of_the_page"})
            served.append(name)
    assert served == ["learned", "none", "sinusoidal"]


def test_one_python_file_and_one_yaml_file_are_trained_evaluated_and_reported(example, tmp_path):
    """In a copy of the project, with nothing else changed, by the command that the page gives."""
    for name in ("src", "conf", "train.py"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    for path, content in example:
        (tmp_path / path).write_text(content)
    own = {**environment(tmp_path), "PYTHONPATH": str(tmp_path / "src")}
    command = [str(tmp_path / "train.py"), "pos=logarithmic", "logger=local", *TINY]
    ended = forked(command, tmp_path, own, timeout=300)
    assert ended.returncode == 0, ended.stderr
    report = tmp_path / "reports" / "ablation"
    (made,) = rows(report / "summary.csv")
    assert (made["pos"], made["status"]) == ("logarithmic", "done")
    assert made["kernel"] == "torch flash, sliding bias (cpu)"
    assert float(made["loss_8x"]) > 0
    assert "logarithmic" in (report / "index.html").read_text()
    assert "logarithmic" in (report / "report.md").read_text()


def test_the_map_says_of_each_folder_what_its_own_first_sentence_says():
    folders = sorted(path.parent.name for path in (ROOT / "src" / "poslab").glob("*/__init__.py"))
    shown = dict(re.findall(r"^  (\w+)/ +(.+)$", EXTENDING[EXTENDING.index("## Map") :], re.MULTILINE))
    own = {
        folder: " ".join(importlib.import_module(f"poslab.{folder}").__doc__.split())
        .split(". ")[0]
        .rstrip(".")
        for folder in folders
    }
    assert shown == own
