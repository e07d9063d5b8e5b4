"""Defaults that follow `trainer.max_steps`: any budget works by itself; a number that is set stays."""

import pytest

from poslab import compose


@pytest.mark.parametrize(
    ("setting", "steps", "warmup", "validations"),
    [
        ("model=micro", 5000, 200, 100),  # a size has the warm-up that suits its budget
        ("trainer.max_steps=1", 1, 1, 1),
        ("trainer.max_steps=2", 2, 1, 2),
        ("trainer.max_steps=405", 405, 41, 100),
    ],
)
def test_any_budget_has_its_share_and_is_named_alone(setting, steps, warmup, validations):
    made = compose(setting)
    trainer, evaluate = made.config.trainer, made.config.evaluate
    assert (trainer.max_steps, trainer.warmup_steps, evaluate.validations) == (steps, warmup, validations)
    assert made.non_default_settings == (setting,)


def test_what_is_set_is_what_is_taken():
    made = compose("trainer.max_steps=20", "trainer.warmup_steps=7", "evaluate.validations=4")
    assert (made.config.trainer.warmup_steps, made.config.evaluate.validations) == (7, 4)
    assert "trainer.warmup_steps=7" in made.non_default_settings
    assert compose("trainer.warmup_steps=2.5%").config.trainer.warmup_steps == 10
    same = compose("trainer.warmup_steps=40")
    assert same.non_default_settings == ()  # it is the default's number
