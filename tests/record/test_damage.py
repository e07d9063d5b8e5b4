"""Records and checkpoints with a flipped bit or a missing end are named and never used."""

import random
import shutil
from pathlib import Path

import pytest

from poslab.record.files import write_sealed
from poslab.record.reader import ReportError
from poslab.record.seal import DamagedError, read_sealed
from poslab.report.write import write_report
from poslab.study.display.run_bar import RunDisplay
from poslab.study.run.execute import run
from poslab.study.run.plan import plan
from poslab.study.run.stopping import Stopper
from support.commands import read
from support.runs import assert_equal_results, make, request, stopped_at

WANTED = {"study": "damaged", "trainer__max_steps": 12, "trainer__checkpoint_seconds": 0.0}
OF_A_FINISHED_RUN = ("manifest.json", "metrics.csv", "extrapolation.csv", "position.csv", "checkpoint.pt")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A finished run, and one stopped during training."""
    folder = tmp_path_factory.mktemp("whole")
    assert make(request(**WANTED), folder / "runs").status == "done"
    stopped_at(7, request(seed=1, **WANTED), folder / "runs")
    names = [path.name for path in sorted((folder / "runs" / "damaged").glob("rope-*"))]
    write_sealed(folder / "runs" / "damaged" / "study.json", {"study": "damaged", "runs": names})
    assert make(request(seed=1, **WANTED), folder / "other").status == "done"
    return folder


def damage(path: Path, chance: random.Random) -> None:
    data = bytearray(path.read_bytes())
    place = chance.randrange(len(data))
    if chance.random() < 0.5:
        del data[place:]
    else:
        data[place] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


@pytest.mark.parametrize("number", range(9))
def test_a_damaged_file_is_named_and_written_again(number, whole, tmp_path, capsys):
    shutil.copytree(whole / "runs", tmp_path / "runs")
    study = tmp_path / "runs" / "damaged"
    done, stopped = (plan(request(seed=seed, **WANTED), tmp_path / "runs") for seed in (0, 1))
    checkpoints = sorted((stopped.directory / "checkpoints").glob("*.pt"))
    ended = [done.directory / name for name in OF_A_FINISHED_RUN]
    paths = [*ended, stopped.directory / "manifest.json", *checkpoints, study / "study.json"]
    path = paths[number]
    damage(path, random.Random(number))
    _is_reported(path, tmp_path)
    capsys.readouterr()
    if path.name == "study.json":
        return
    job, expected = (
        (done, whole / "runs" / "damaged")
        if done.directory in path.parents
        else (stopped, whole / "other" / "damaged")
    )
    assert not job.settled
    manifest = run(job, RunDisplay("again", quiet=True), Stopper())
    assert manifest.status == "done"
    printed = capsys.readouterr().err
    newest = path.parent.name != "checkpoints" or path == checkpoints[-1]
    assert (str(path) in printed) == newest  # the older of two is not even opened
    assert any(path.name in note for note in manifest.notes or []) == newest
    assert "Traceback" not in printed
    assert_equal_results(expected / job.directory.name, job.directory)
    assert job.settled


def _is_reported(path: Path, folder: Path) -> None:
    """Check that the report has the finished run's true figures, or is refused with the file's name."""
    try:
        report = write_report("damaged", folder / "runs", folder / "reports")
    except ReportError as error:  # no finished run is left to report
        message = str(error)
    else:
        (row,) = [row for row in read(report.directory / "summary.csv") if row["seed"] == "0"]
        assert row["status"] == "done"
        message = ""
    of_the_finished = "seed0" in path.parent.name and path.suffix != ".pt"
    assert (path.name in message) == (of_the_finished or path.name == "study.json")


def test_any_changed_bit_of_a_sealed_file_is_detected(tmp_path):
    path = tmp_path / "manifest.json"
    write_sealed(path, {"format": 2, "text": "Ærø", "number": 0.1})
    sound = path.read_bytes()
    assert read_sealed(path) == {"format": 2, "text": "Ærø", "number": 0.1}
    for place in range(len(sound)):
        for bit in range(8):
            changed = bytearray(sound)
            changed[place] ^= 1 << bit
            path.write_bytes(changed)
            with pytest.raises(DamagedError, match=r"manifest\.json is damaged"):
                read_sealed(path)
