"""What the README promises about adding a scheme, tried with its own code."""

import re
from pathlib import Path

import pytest
import torch
import yaml
from conftest import ATTENTIONS, make_gpt, request

import poslab.positions
from poslab.job import plan, run
from poslab.positions import Geometry, build_scheme
from poslab.terminal import RunDisplay

README = (Path(__file__).parent.parent / "README.md").read_text()


@pytest.fixture
def arm(tmp_path, monkeypatch):
    """The README's Python block as a module of poslab.positions, and its YAML block read."""
    python, options = (
        re.search(rf"```{language}\n# \S+/(\w+)\.\w+\n(.*?)```", README, re.DOTALL)
        for language in ("python", "yaml")
    )
    assert python[1] == options[1]
    (tmp_path / f"{python[1]}.py").write_text(python[2])
    monkeypatch.setattr(poslab.positions, "__path__", [*poslab.positions.__path__, str(tmp_path)])
    return yaml.safe_load(options[2])


def test_a_new_scheme_is_one_python_file_and_one_yaml_file(arm, tmp_path):
    bias = build_scheme(arm, Geometry(32, 4, 64)).bias(torch.arange(5))
    torch.testing.assert_close(bias, -torch.log1p(torch.arange(5).double()).expand(4, 5))
    tokens = torch.arange(40)[None] % 50
    softmax, flash = (make_gpt(arm, ATTENTIONS[name])(tokens) for name in ("softmax", "flash"))
    torch.testing.assert_close(softmax, flash, atol=1e-9, rtol=1e-9)
    manifest = run(plan(request(pos=arm), tmp_path), RunDisplay("new"))
    assert manifest["status"] == "done", manifest["reason"]
    assert manifest["kernel"] == "strips"
