"""The files of sweeps and model sizes."""

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode

import poslab
from poslab.config.compose import arms
from poslab.study.cost import cost_of
from support.commands import ROOT
from support.models import CONF

SWEEPS = sorted(path for folder in ("sweeps", "sweeps/claims") for path in (ROOT / folder).glob("*.yaml"))


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
def test_a_sweep_names_its_study_and_what_it_varies(path):
    sweep = path.relative_to(ROOT / "sweeps").with_suffix("")
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        made = compose("config", [f"sweep={sweep}", "model=micro"], return_hydra_config=True)
    assert (made.study, made.hydra.mode) == (path.stem, RunMode.MULTIRUN)
    if path.stem != "recall":  # which has the size of its task
        steps = 520 if path.stem == "bpe" else 5000  # its own budget, or that of the size for a GPU
        assert (made.trainer.max_steps, made.context_length) == (steps, 512)
    swept = made.hydra.sweeper.params
    for name in ("model", "trainer", "context_length", "trainer.max_steps"):  # only as the question
        assert name not in swept or "," in str(swept[name])


@pytest.mark.parametrize("size", [name for name in arms(CONF / "model") if name.startswith("ladder")])
def test_sizes_of_the_ladder_are_in_proportion(size):
    """8 tokens per parameter, 80 for one size; depth grows with width, and the rate falls with it."""
    config = poslab.compose(f"model={size}", "evaluate.longest=8").config
    cost = cost_of(config.result_settings(), vocabulary=128)
    assert cost.tokens / cost.parameters == pytest.approx(80 if size.endswith("long") else 8, rel=0.05)
    assert config.model.width == 32 * config.model.heads
    assert config.model.width == (16 if size.endswith("deep") else 32) * config.model.layers
    assert config.trainer.learning_rate == pytest.approx(4e-3 * (128 / config.model.width) ** 0.6, rel=0.03)
