"""What can be asked for on the command line; what cannot is refused in one line."""

import pytest
from omegaconf import OmegaConf

import poslab
from poslab.config.request import BESIDE_THE_RESULT, Config
from poslab.config.schema import ConfigError, RunConfig
from poslab.study.cost import cost_of
from poslab.study.run.plan import plan
from support.commands import ROOT, called
from support.runs import request

REFUSED = {
    "an odd head width": (["model.width=12"], "heads of odd width 3: choose an even one"),
    "heads that do not divide": (["model.heads=3"], "width=128 is not a multiple of heads=3"),
    "a slash in the study": (["study=../elsewhere"], "study: '../elsewhere' must be letters"),
    "a scheme that ends before L": (
        ["pos=xpos", "pos.scale_base=1", "context_length=1024"],
        "pos.scheme=xpos is defined up to 127 tokens, fewer than context_length=1,024",
    ),
    "a negative base": (["pos.base=-1"], "pos.base=-1: input should be greater than 0"),
    "one bad arm of a study": (["-m", "pos=rope,alibi", "seed=0,-1"], "seed=-1"),
    "a swept sweep": (["-m", "sweep=bases,quickstart"], "cannot be swept"),
    "a pair without a fast form": (
        ["pos=kerple", "attention=linear"],
        "pos.scheme=kerple never becomes geometric",
    ),
    "rescaling what has no rotation": (
        ["-m", "pos=rope,alibi", "evaluate.rescale=[none,pi]"],
        "pos.scheme=alibi has none",
    ),
    "rescaling alone": (["evaluate.rescale=[pi]"], "must begin with none"),
    "ends of segments in other tokens": (
        ["pos=bipe_rope", "data.vocabulary=512"],
        "choose data.vocabulary=bytes",
    ),
    "an unknown rescaling": (["evaluate.rescale=[none,ntq]"], "evaluate.rescale.1='ntq'"),
    "a factor that nothing takes": (["evaluate.rescale_factor=4"], "is for pi, ntk or yarn"),
    "recalibration of what is not dropped": (["evaluate.recalibration_steps=5"], "is for drop"),
    "a rescaling that changes nothing": (
        ["evaluate.rescale=[none,dynamic]", "evaluate.longest=1"],
        "evaluate.rescale=dynamic changes nothing for pos.scheme=rope up to its longest evaluation",
    ),
    "a factor that is no number": (
        ["evaluate.rescale=[none,pi]", "evaluate.rescale_factor=nan"],
        "evaluate.rescale_factor",
    ),
    "a figure that is none": (
        ["primary=slidng_8x"],
        "primary: 'slidng_8x' is no loss that can be tested; there are sliding_0.5x, sliding_1x, ",
    ),
    "a figure past the longest evaluation": (
        ["primary=sliding_8x", "evaluate.longest=4"],
        "is evaluated up to 4 L (evaluate.longest); there are sliding_0.5x, sliding_1x, sliding_2x, "
        "sliding_4x, loss_0.5x",
    ),
    "two figures to test": (
        ["-m", "pos=rope", "primary=sliding_8x,loss_8x"],
        "primary=sliding_8x,loss_8x: a study has one primary",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_run_is_one_line_and_status_2(case, tmp_path):
    arguments, line = REFUSED[case]
    ended = called(*arguments, cwd=tmp_path)
    assert ended.returncode == 2
    assert line in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1
    assert not list(tmp_path.rglob("manifest.json"))


def test_a_text_that_is_too_short_is_refused(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("short")
    with pytest.raises(ConfigError, match="is shorter than"):
        plan(request(data={"source": "text", "path": str(path), "vocabulary": "bytes"}), tmp_path / "runs")


SWEEPS = sorted(path for folder in ("sweeps", "sweeps/claims") for path in (ROOT / folder).glob("*.yaml"))


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
def test_a_sweep_names_its_study_and_what_it_varies(path, tmp_path):
    name = path.relative_to(ROOT / "sweeps").with_suffix("")
    told = called(f"sweep={name}", "model=micro", "--cfg", "all", cwd=tmp_path).stdout
    assert f"\nstudy: {path.stem}\n" in told
    assert "mode: MULTIRUN" in told
    if path.stem != "recall":  # which has the size of its task
        steps = 520 if path.stem == "bpe" else 5000  # its own budget; else that of the size for a GPU
        assert f"max_steps: {steps}\n" in told
        assert "context_length: 512\n" in told
    swept = OmegaConf.load(path).hydra.sweeper.params
    for name in ("model", "trainer", "context_length", "trainer.max_steps"):  # only as the question
        assert name not in swept or "," in str(swept[name])


@pytest.mark.parametrize(
    "size",
    ["ladder_64", "ladder_64_deep", "ladder_96", "ladder_128", "ladder_160", "ladder_192", "ladder_64_long"],
)
def test_sizes_of_the_ladder_are_in_proportion(size):
    """8 tokens a parameter, 80 for one; the block grows evenly, and the rate falls with the width."""
    config = poslab.compose(f"model={size}", "evaluate.longest=8").config
    cost = cost_of(config.result_settings(), vocabulary=128)
    assert cost.tokens / cost.parameters == pytest.approx(80 if size.endswith("long") else 8, rel=0.05)
    assert config.model.width == 32 * config.model.heads
    assert config.model.width == (16 if size.endswith("deep") else 32) * config.model.layers
    assert config.trainer.learning_rate == pytest.approx(4e-3 * (128 / config.model.width) ** 0.6, rel=0.03)


def test_a_sweep_may_be_made_under_another_name(tmp_path):
    assert "study: mine\n" in called("sweep=bases", "study=mine", "--cfg", "job", cwd=tmp_path).stdout


def test_every_setting_beside_the_result_has_the_value_that_a_trained_model_is_loaded_with():
    """A checkpoint leaves them out: one that is missing here could not be loaded."""
    assert BESIDE_THE_RESULT.keys() == Config.model_fields.keys() - RunConfig.model_fields.keys()
