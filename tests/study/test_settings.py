"""Every setting is described once, in its schema; docs/settings.md and --help say the same."""

from dev.settings_page import page
from poslab.study.settings import settings
from support.commands import ROOT, called
from support.models import CONF


def test_the_page_is_that_of_the_schema():
    """`python dev/settings_page.py > docs/settings.md` makes it again."""
    assert (ROOT / "docs" / "settings.md").read_text() == page(CONF)


def test_help_lists_a_group_a_setting_or_all(tmp_path):
    everything = called("--help", "settings", cwd=tmp_path)
    assert everything.returncode == 0, everything.stderr
    for rows in settings(CONF).values():
        for row in rows:
            assert row.description, row.name
            assert row.values, row.name
            assert f"\n{row.name}" in f"\n{everything.stdout}"
    one = called("--help", "trainer.max_steps", cwd=tmp_path).stdout
    assert one.startswith("trainer.max_steps=400, ")
    assert "5000 (micro), 3000 (task)\n" in one
    assert "optimizer steps" in one
    trainer = called("--help", "trainer", cwd=tmp_path).stdout
    assert "trainer.beta2" in trainer
    assert "evaluate.longest" not in trainer
