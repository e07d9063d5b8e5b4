"""Every setting is described once, in its schema; docs/settings.md and --help show it."""

from dev.settings_page import page
from poslab.config.option_files import Conf
from poslab.study.settings import settings
from support.commands import ROOT, called, tiny
from support.models import CONF


def test_the_page_is_up_to_date_with_the_schema():
    """`python dev/settings_page.py > docs/settings.md` rewrites it."""
    assert (ROOT / "docs" / "settings.md").read_text() == page(CONF)


def test_help_lists_a_group_a_setting_or_all(tmp_path):
    everything = called("--help", "settings", cwd=tmp_path)
    for rows in settings(Conf((CONF,))).values():
        for row in rows:
            assert row.description, row.name
            assert row.values, row.name
            assert f"\n{row.name}" in f"\n{everything.stdout}"
    one = called("--help", "trainer.max_steps", cwd=tmp_path).stdout
    assert one.startswith("trainer.max_steps=400\n")
    assert "optimizer steps" in one
    trainer = called("--help", "trainer", cwd=tmp_path).stdout
    assert "trainer.beta2" in trainer
    assert "evaluate.longest" not in trainer


def test_help_messages_and_sweeps_know_the_files_of_the_user_s_folder(tmp_path):
    files = {
        "steep.py": "from poslab.config.schema import Options\nfrom poslab.model.positions import Scheme\n"
        "class SteepOptions(Options):\n    steepness: float\n\n\n"
        "class Steep(Scheme):\n    options_class = SteepOptions\n",
        "pos/steep.yaml": "scheme: steep\nsteepness: 1.0\n",
        "twice.py": "from poslab.objectives.tasks import Task\nclass Twice(Task):\n    pass\n",
        "task/twice.yaml": "# @package _global_\nobjective:\n  kind: twice\n",
        "logger/mine.yaml": "mine:\n  _target_: pytorch_lightning.loggers.CSVLogger\n  name: mine\n",
        "sweep/mine.yaml": "# @package _global_\nhydra:\n  sweeper:\n    params:\n      pos: t5,fire\n",
    }
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    flags = ("--config-dir", str(tmp_path))
    told = called("--help", "settings", *flags, cwd=tmp_path).stdout
    assert "\npos.steepness=1 [steep]\n" in told
    assert "| twice" in told  # of a task
    refused = called("pos=rope", "pos.steepness=4", "logger=local", *flags, cwd=tmp_path, status=2)
    assert "pos.steepness is a setting of pos=steep only" in refused.stderr
    settings = [each for each in tiny(logger="local") if not each.startswith("pos=")]
    planned = called("-m", "sweep=mine", "pos.rate=3", "plan=true", *settings, *flags, cwd=tmp_path)
    assert "fire rate=3" in planned.stdout
