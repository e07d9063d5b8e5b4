"""Runs of a sweep, which poslab composes together, equal those that Hydra composes one by one."""

import shutil

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from poslab.config.compose import command_line, sections
from poslab.config.installation import conf_folder
from poslab.config.option_files import Conf, installed_conf, load
from poslab.config.schema import ConfigError
from poslab.config.sweep import Composer, for_each_run
from poslab.objectives import build_objective
from poslab.study.run.start import request_of
from support.models import CONF

EDGES = ["0", "-3", "1_000", "007", "2.50", "true", "null", "'5'", "''", "nan"]
LISTS: list[list[str]] = [
    *([f"seed={value}"] for value in EDGES),
    *([f"study=a{value}b", "seed=1"] for value in range(2)),
    *(["pos=" + pos, f"seed={seed}"] for pos in ("rope", "t5") for seed in (0, 1)),
    *([f"evaluate.rescale={names}", "seed=2"] for names in ("[none]", "[none,pi]")),
    *([f"data.path={path}", "data=text"] for path in ("a.txt", "'${seed}'")),
    *([f"+pos.other={value}", "pos=t5"] for value in (1, 2)),
    *(["~part", f"seed={value}"] for value in (1, 2)),
    ["question='why, exactly?'", "seed=1"],
]


@pytest.fixture
def hydra():
    with initialize_config_dir(str(CONF), version_base="1.3"):
        yield lambda overrides: compose("config", overrides=overrides, return_hydra_config=True)


def alone(config):
    choices = dict(config.hydra.runtime.choices)
    config.hydra = None  # which refers to the run's number
    settings = OmegaConf.to_container(config, resolve=True)
    del settings["hydra"]
    return settings, choices


def test_every_run_is_as_hydra_composes_it(hydra):
    by_hydra = {tuple(overrides): hydra(overrides) for overrides in LISTS}
    composer = Composer(lambda overrides: by_hydra[tuple(overrides)])
    made = [
        (place, composer.composed(LISTS[place]))
        for place in (*range(len(LISTS)), *reversed(range(len(LISTS))))
    ]
    # As text, since 1, 1.0 and True are equal.
    expected = [repr(alone(by_hydra[tuple(overrides)])) for overrides in LISTS]
    for place, composed in made:
        assert repr((dict(composed.settings), dict(composed.choices))) == expected[place], LISTS[place]
        assert composed.conf.folders == (CONF,)


def test_an_option_file_has_what_it_inherits(tmp_path):
    """A user's file that inherits from poslab's and from another file of the user."""
    (tmp_path / "pos").mkdir()
    near, far = tmp_path / "pos/near.yaml", tmp_path / "pos/far.yaml"
    near.write_text("defaults: [rope, _self_]\nbase: 500.0\n")
    far.write_text("defaults: [near]\npairing: interleaved\n")
    rope = load(conf_folder() / "pos/rope.yaml")
    assert load(near) == {**rope, "base": 500.0}
    assert load(far) == {**rope, "base": 500.0, "pairing": "interleaved"}


def test_runs_that_differ_in_their_seed_are_composed_once(hydra):
    asked = []
    composer = Composer(lambda overrides: asked.append(overrides) or hydra(overrides))
    runs = [[f"pos={pos}", f"seed={seed}", "study=x"] for seed in range(20) for pos in ("rope", "alibi")]
    for run in runs:
        composer.composed(run)
    assert asked == runs[:2]


def test_a_setting_that_refers_to_another_is_left_to_hydra(tmp_path):
    (tmp_path / "config.yaml").write_text("seed: 0\nother: ${seed}\nboth: [1]\n")
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(tmp_path), version_base="1.3"):
        composer = Composer(lambda overrides: compose("config", overrides, return_hydra_config=True))
        for seed in range(3):
            made = composer.composed([f"seed={seed}"])
            assert made.settings == {"seed": seed, "other": seed, "both": [1]}
            assert made.conf.folders == (tmp_path,)


@pytest.mark.parametrize(
    ("study", "rate"),
    [("pos=fire,kerple", "choice(1.0)"), ("sweep=extrapolation", "choice(1.0)"), ("pos=t5", "1.0")],
)
def test_a_setting_of_swept_options_is_left_to_the_runs_and_shown_as_typed(study, rate):
    """For the study itself Hydra composes pos=rope, which has no rate."""
    given = [study, "pos.rate=1.0", "pos.decay=0.5,0.25", "seed=3"]
    left = [study, f"pos.rate={rate}", "pos.decay=0.5,0.25", "seed=3"]
    assert for_each_run(["-m", *given], installed_conf()) == ["-m", *left]
    assert command_line(left, multirun=True).split()[-4:] == given


def test_a_setting_of_swept_tasks_is_left_to_the_runs():
    """For the study itself Hydra composes no task."""
    given = ["-m", "task=copy,sort", "objective.samples=4"]
    assert for_each_run(given, installed_conf()) == [*given[:2], "objective.samples=choice(4)"]


def test_a_label_in_the_file_of_an_objective_is_refused(tmp_path):
    """It has no effect there, since only schemes and attentions are in the names of all arms."""
    folder = shutil.copytree(CONF, tmp_path / "conf")
    (folder / "objective/named.yaml").write_text("kind: causal\nlabel: next token\n")
    with initialize_config_dir(str(folder), version_base="1.3"):
        composer = Composer(
            lambda overrides: compose("config", overrides=overrides, return_hydra_config=True)
        )
        read = composer.composed(["objective=named"])
    asked = request_of(read.settings, read.choices, ["objective=named"], Conf((folder,)))
    with pytest.raises(ConfigError, match=r"objective\.label is not a setting"):
        build_objective(asked.config.objective)


def test_a_label_in_an_option_file_names_the_arm_and_changes_no_result(tmp_path):
    folder = shutil.copytree(CONF, tmp_path / "conf")
    rope = (folder / "pos/rope.yaml").read_text()
    (folder / "pos/pressed.yaml").write_text(f"{rope}label: rope as drawn\n")
    conf = Conf((folder,))
    made = []
    with initialize_config_dir(str(folder), version_base="1.3"):
        composer = Composer(
            lambda overrides: compose("config", overrides=overrides, return_hydra_config=True)
        )
        for settings in (["pos=rope"], ["pos=pressed"], ["pos=pressed", "pos.base=500"]):
            read = composer.composed(settings)
            made.append(request_of(read.settings, read.choices, settings, conf))
    assert [one.pos for one in made] == ["rope", "rope as drawn", "rope as drawn base=500"]
    assert made[0].config == made[1].config
    assert sections(conf, "pos")["pressed"] == sections(conf, "pos")["rope"]
