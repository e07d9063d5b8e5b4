"""What commands do with records of a format that they do not read: one line, and nothing is lost."""

import shutil
from pathlib import Path

import pytest

from poslab.config.schema import ConfigError
from poslab.record.files import write_sealed
from poslab.record.manifest import read_manifest
from poslab.record.schema import FINAL, FORMAT, MANIFEST
from poslab.record.seal import read_sealed
from poslab.record.writer import RunRecord
from poslab.study.display.run_bar import RunDisplay
from poslab.study.reuse import take_over
from poslab.study.run.make import run
from poslab.study.run.plan import plan
from poslab.study.run.stopping import Stopper
from poslab.study.status import show_status
from poslab.training.trained import load_model, read_trained_model
from support.checkpoints import from_bytes, to_bytes
from support.models import SCHEMES
from support.runs import make, request

GOLDEN = Path(__file__).parents[1] / "record" / "golden" / "format3"
NAME = "rope-softmax-seed0-8ff461091f07"
REFUSED = "its record has format 2, which this version does not read: train it again"


@pytest.fixture
def older(tmp_path):
    """A study of whose two records one is of the format before the present one."""
    study = Path(shutil.copytree(GOLDEN, tmp_path / "format3"))
    manifest = read_sealed(study / NAME / MANIFEST)
    write_sealed(study / NAME / MANIFEST, {**manifest, "format": FORMAT - 1})
    return study


def test_status_says_that_a_record_is_older(older, capsys):
    assert show_status(older.name, older.parent, follow=False) == 1
    told = capsys.readouterr()
    assert told.out.count(REFUSED) == 1
    assert "damaged" not in told.out + told.err


def test_the_model_of_an_older_record_is_refused(older):
    with pytest.raises(ConfigError, match=REFUSED):
        read_trained_model(older / NAME)


def test_a_model_with_other_weights_is_refused(tmp_path):
    """As of a T5 from before its table was scaled: loaded, it would be another model."""
    asked = request("one", pos=SCHEMES["t5"], trainer__max_steps=6)
    directory = plan(asked, tmp_path).directory
    make(asked, tmp_path)
    manifest = read_manifest(directory)
    content = from_bytes((directory / FINAL).read_bytes())
    content["weights"]["scheme.table"] = content["weights"].pop("scheme.bucket_bias")
    record = RunRecord(directory, manifest)
    record.files = {**(manifest.files or {})}
    record.write_file(FINAL, to_bytes(content))
    record.update(files=record.files)
    with pytest.raises(ConfigError, match="the weights do not fit the model"):
        load_model(directory)


def test_a_record_of_a_newer_version_is_neither_made_again_nor_taken_over(tmp_path):
    job = plan(request("one"), tmp_path)
    write_sealed(job.directory / MANIFEST, {"format": FORMAT + 1, "status": "done"})
    content = (job.directory / MANIFEST).read_bytes()
    assert (job.standing.status, job.standing.damage, job.settled) == ("newer", (), False)
    with pytest.raises(ConfigError, match="use the version of poslab that wrote it"):
        run(job, RunDisplay("made", quiet=True), Stopper())
    assert (job.directory / MANIFEST).read_bytes() == content
    other = plan(request("two"), tmp_path)
    assert take_over([other]) == ([], 0)
    assert not other.directory.exists()
