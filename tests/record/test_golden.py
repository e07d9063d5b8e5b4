"""Records of earlier versions: those with today's format are read, others are refused by name.

golden/format3 has runs of a few steps on the copy task, without their weights.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from poslab.record.files import write_sealed
from poslab.record.manifest import read_manifest
from poslab.record.measures import multiples
from poslab.record.reader import Run, load, load_run
from poslab.record.schema import MANIFEST
from poslab.record.seal import read_sealed
from poslab.record.summary import row
from poslab.record.writer import RunRecord

GOLDEN = Path(__file__).parent / "golden"
LOSSES = ("validation_loss", "loss_1x", "loss_2x", "sliding_2x")
SEED_0 = {  # as reported by the versions that wrote the records
    "rope": (5.307214364409447, 5.286289989948273, 5.286104828119278, 5.239081501960754),
    "alibi": (5.307019151747227, 5.285761542618275, 5.285573333501816, 5.238343358039856),
}


def of(pos: str = "rope") -> Run:
    runs = [run for run in load("format3", GOLDEN).runs if run.status != "not started"]
    return next(run for run in runs if run.directory.startswith(pos))


def figures(run: Run) -> dict[str, Any]:
    return row(run, None, multiples([run]))


def copied(folder: Path) -> Path:
    """Copy a golden run, to change it; return its directory."""
    directory = folder / "runs" / "format3" / of().directory
    shutil.copytree(GOLDEN / "format3" / directory.name, directory)
    return directory


@pytest.mark.parametrize("pos", SEED_0)
def test_a_record_keeps_its_figures(pos):
    run = of(pos)
    assert (run.status, run.reason, run.manifest.format) == ("done", "", 3)
    found = figures(run)
    assert tuple(found[key] for key in LOSSES) == pytest.approx(SEED_0[pos], rel=1e-12)
    assert (found["tokens"], found["parameters"], found["vocabulary"]) == (384, 7408, 256)
    assert found["data_fingerprint"] == "342c61ac027a611f5bae5fe56df0e50b4aee23747620c20a9cdc526974b2600c"
    assert len(run.positions) == 32


def test_a_manifest_is_written_as_it_was_read(tmp_path):
    """Fields unknown to this version stay, and none is added."""
    directory = copied(tmp_path)
    facts = read_sealed(directory / MANIFEST) | {"of_a_fork": {"deep": [1, None]}}
    write_sealed(directory / MANIFEST, facts)
    RunRecord(directory, read_manifest(directory)).update(wandb={"id": "abc", "mode": "offline"})
    again = read_sealed(directory / MANIFEST)
    assert again == facts | {"wandb": {"id": "abc", "mode": "offline"}}
    assert json.dumps(again["config"]) == json.dumps(facts["config"])


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"seed": True}, "seed"),
        ({"files": {"metrics.csv": 1}}, "files.metrics.csv"),
    ],
)
def test_a_field_of_another_type_is_named(change, field, tmp_path):
    directory = copied(tmp_path)
    write_sealed(directory / MANIFEST, {**read_sealed(directory / MANIFEST), **change})
    run = load_run(directory)
    assert (run.status, run.reason) == ("unreadable", f"manifest.json has no valid {field}")


def test_unlisted_tables_are_not_read_and_missing_ones_are_named(tmp_path):
    """A file added next to a sealed record does not change the record."""
    directory = copied(tmp_path)
    (directory / "rescaled.csv").write_text("layer,head,queries,distance\n0,0,1,1\n")
    run = load_run(directory)
    assert figures(run) == figures(of())
    assert run.tables == of().tables
    record = RunRecord(directory, read_manifest(directory))
    record.update(files={"metrics.csv": record.manifest.files["metrics.csv"]})
    run = load_run(directory)
    assert (run.status, run.reason) == ("unreadable", "manifest.json lists no extrapolation.csv")


def test_a_diverged_run_shows_its_curve_only_if_it_is_unchanged(tmp_path):
    directory = copied(tmp_path)
    RunRecord(directory, read_manifest(directory)).update(status="diverged", reason="no number at step 4")
    assert len(load_run(directory).validations) == 3
    (directory / "metrics.csv").write_text((directory / "metrics.csv").read_text().replace("96", "97"))
    assert load_run(directory).validations == ()
