"""Defaults that follow `trainer.max_steps`: any budget works without other settings; set numbers stay."""

import pytest

from poslab import compose


@pytest.mark.parametrize(
    ("setting", "steps", "warmup", "validations"),
    [
        ("model=micro", 5000, 200, 100),  # the warm-up of a size suits its budget
        ("trainer.max_steps=1", 1, 1, 1),
        ("trainer.max_steps=2", 2, 1, 2),
        ("trainer.max_steps=405", 405, 41, 100),
    ],
)
def test_a_budget_is_enough_to_set_warm_up_and_validations(setting, steps, warmup, validations):
    made = compose(setting)
    trainer, evaluate = made.config.trainer, made.config.evaluate
    assert (trainer.max_steps, trainer.warmup_steps, evaluate.validations) == (steps, warmup, validations)
    assert made.non_default_settings == (setting,)


def test_set_numbers_are_used():
    made = compose("trainer.max_steps=20", "trainer.warmup_steps=7", "evaluate.validations=4")
    assert (made.config.trainer.warmup_steps, made.config.evaluate.validations) == (7, 4)
    assert "trainer.warmup_steps=7" in made.non_default_settings
    assert compose("trainer.warmup_steps=2.5%").config.trainer.warmup_steps == 10
    same = compose("trainer.warmup_steps=40")
    assert same.non_default_settings == ()  # equal to the default
