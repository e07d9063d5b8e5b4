"""What commands do with records of a format that they do not read: one line, and nothing is lost."""

import shutil
from pathlib import Path

import pytest
from rich.console import Console

from poslab.config.schema import ConfigError
from poslab.record.files import write_sealed
from poslab.record.schema import FORMAT, MANIFEST
from poslab.study.display.run_bar import RunDisplay
from poslab.study.reuse import copy_from_other_study, recorded_elsewhere
from poslab.study.run.make import run
from poslab.study.run.plan import plan
from poslab.study.run.stopping import Stopper
from poslab.study.status import show_status
from poslab.training.checkpoints import read_trained_model
from support.runs import request

OLDER = Path(__file__).parents[1] / "record" / "golden" / "format1"
NAME = "rope-softmax-seed0-bbd13b2d4ece"


def test_status_says_that_a_record_is_older(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(OLDER, tmp_path / "format1")
    assert show_status("format1", tmp_path, follow=False) == 1
    told = capsys.readouterr()
    assert "its record has format 1, which this version does not read: train it again" in told.out
    assert "damaged" not in told.out + told.err


def test_the_model_of_an_older_record_is_refused() -> None:
    with pytest.raises(ConfigError, match="its record has format 1, which this version does not read"):
        read_trained_model(OLDER / NAME)


def test_a_record_of_a_newer_version_is_neither_made_again_nor_taken_over(tmp_path: Path) -> None:
    job = plan(request("one"), tmp_path)
    write_sealed(job.directory / MANIFEST, {"format": FORMAT + 1, "status": "done"})
    content = (job.directory / MANIFEST).read_bytes()
    assert (job.standing.status, job.standing.damage, job.settled) == ("newer", (), False)
    with pytest.raises(ConfigError, match="use the version of poslab that wrote it"):
        run(job, RunDisplay("made", Console(quiet=True)), Stopper())
    assert (job.directory / MANIFEST).read_bytes() == content
    other = plan(request("two"), tmp_path)
    assert copy_from_other_study(other, recorded_elsewhere([other])) is None
    assert not other.directory.exists()
