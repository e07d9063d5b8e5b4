"""The title of a study names the settings by which its runs differ."""

import pytest

from poslab.analysis.results import gather
from poslab.analysis.titles import compared
from support.records import BATCH, write_run


@pytest.mark.parametrize(
    ("steps", "named"), [((100, 200), "trainer.max_steps"), ((100, 100), "trainer.warmup_steps")]
)
def test_a_setting_that_follows_another_is_not_named_with_it(steps, named, tmp_path):
    for warmup, budget in zip((10, 20), steps, strict=True):
        trainer = {"warmup_steps": warmup, "max_steps": budget, "batch_size": BATCH, "learning_rate": warmup}
        write_run(tmp_path, f"rope-{warmup}", "rope", 0, config={"trainer": trainer})
    title = compared(gather("made_up", tmp_path, None))
    assert title == f"rope by trainer.learning_rate and {named}, one run each"
