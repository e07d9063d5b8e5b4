"""Every cell of docs/library.ipynb runs."""

import json
import re

import pytest
import torch
from matplotlib.figure import Figure

from support.commands import ROOT
from support.runs import make, request

PAGE = ROOT / "docs" / "library.ipynb"
NOTEBOOK = json.loads(PAGE.read_text())


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """The working directory docs/ of a checkout with the archived studies and a tiny trained run."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "reports").symlink_to(ROOT / "reports")
    tiny = request("ablation", trainer__max_steps=2, trainer__warmup_steps=1, evaluate__longest=1)
    assert make(tiny, tmp_path / "runs").status == "done"
    monkeypatch.chdir(tmp_path / "docs")


def test_the_cells_run_in_order(checkout):
    names = {}
    for cell in NOTEBOOK["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    assert names["losses"][-1] < names["losses"][0] / 2
    assert all(each.grad is not None for each in names["model"].scheme.parameters())
    assert names["logits"].shape == (1, 36, 256)
    assert names["refusal"].startswith("pos=alibbi does not exist (did you mean alibi or bipe_alibi?)")
    means = names["means"]
    assert set(means.index) == {"rope", "alibi", "t5", "learned", "sinusoidal", "none"}
    assert means.loc["rope", 8.0] > means.loc["t5", 8.0]
    assert len(names["pairs"]) == 10  # of the five that are defined at 8 L
    assert isinstance(names["figure"], Figure)
    assert float(names["probabilities"].detach().sum()) == pytest.approx(1)
    assert torch.equal(names["again"].embedding.weight, names["trained"].embedding.weight)


def test_it_is_stored_without_outputs_and_its_links_are_valid():
    """Outputs would contain paths and times of the machine."""
    for cell in NOTEBOOK["cells"]:
        assert cell.get("outputs", []) == []
        assert cell.get("execution_count") is None
        for target in re.findall(r"\]\(([^)#]+)", "".join(cell["source"])):
            assert (PAGE.parent / target).exists(), target
