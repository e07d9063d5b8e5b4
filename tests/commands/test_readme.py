"""The table of pairs, the example of a new scheme and the map on the pages agree with the code."""

import importlib
import re
from contextlib import suppress

import pytest
import torch
import yaml

import poslab.model.positions
from poslab.config.option_files import Conf
from poslab.config.schema import ConfigError, PairError
from poslab.model.pairs import grid
from poslab.model.positions import Geometry, build_scheme
from support.commands import ROOT
from support.models import ATTENTIONS, CONF, POSITIONS, make_gpt
from support.packages import EXTENDING, documented

SCHEMES = (ROOT / "docs" / "schemes.md").read_text()
EXAMPLE = ("src/poslab/model/positions/logarithmic.py", "conf/pos/logarithmic.yaml")


def test_the_table_of_pairs_agrees_with_the_code():
    table = re.search(r"<!-- grid -->\n(.*?)<!-- /grid -->", SCHEMES, re.DOTALL)[1]
    assert table == grid(Conf((CONF,)))


def test_the_example_of_a_scheme_follows_its_formula_and_is_refused_elsewhere(tmp_path, monkeypatch):
    (tmp_path / "logarithmic.py").write_text(documented(EXAMPLE[0]))
    monkeypatch.setattr(poslab.model.positions, "__path__", [*poslab.model.positions.__path__, str(tmp_path)])
    arm = yaml.safe_load(documented(EXAMPLE[1]))
    bias = build_scheme(arm, Geometry(32, 4, 64, layers=4)).bias(torch.arange(5))
    torch.testing.assert_close(bias, -torch.log1p(torch.arange(5).double()).expand(4, 5))
    tokens = torch.arange(40)[None] % 50
    softmax, flash = (make_gpt(arm, ATTENTIONS[name])(tokens) for name in ("softmax", "flash"))
    torch.testing.assert_close(softmax, flash, atol=1e-9, rtol=1e-9)
    with pytest.raises(ConfigError, match="never becomes geometric"):
        make_gpt(arm, ATTENTIONS["linear"])


def test_the_example_of_a_mixer_refuses_every_scheme_that_would_act_inside_it(tmp_path, monkeypatch):
    (tmp_path / "mean_of_the_page.py").write_text(documented("src/poslab/model/attention/mean.py"))
    monkeypatch.syspath_prepend(tmp_path)
    served = []
    for name, section in POSITIONS.items():
        with suppress(PairError):
            make_gpt(section, {"kind": "mean_of_the_page"})
            served.append(name)
    assert served == ["learned", "none", "sinusoidal"]


def test_the_map_has_the_first_sentence_of_each_folders_docstring():
    folders = sorted(path.parent.name for path in (ROOT / "src" / "poslab").glob("*/__init__.py"))
    shown = dict(re.findall(r"^  (\w+)/ +(.+)$", EXTENDING[EXTENDING.index("## Map") :], re.MULTILINE))
    own = {
        folder: " ".join(importlib.import_module(f"poslab.{folder}").__doc__.split())
        .split(". ")[0]
        .rstrip(".")
        for folder in folders
    }
    assert shown == own
