"""Records and lists in the wrong folder, and lists of other formats, are named and not used."""

import json
import re
import shutil
from pathlib import Path

import pytest

from poslab.config.schema import ConfigError
from poslab.record.files import write_sealed
from poslab.record.manifest import read_manifest
from poslab.record.reader import ReportError, load, load_run
from poslab.record.schema import MANIFEST, STUDY_LIST
from poslab.record.seal import DamagedError, UnreadableError, read_sealed, sealed
from poslab.record.study_list import enlist, read_study_list, write_study_list
from poslab.record.writer import RunRecord
from poslab.study.status import show_status

GOLDEN = Path(__file__).parent / "golden"
NEWER = "has format 4, which this version does not read: use the version of poslab that wrote it"


@pytest.fixture
def study(tmp_path):
    return Path(shutil.copytree(GOLDEN / "format3", tmp_path / "runs" / "format3"))


def runs_of(study: Path) -> tuple[Path, Path]:
    rope, alibi = (next(study.glob(f"{pos}-*")) for pos in ("rope", "alibi"))
    return rope, alibi


def test_a_record_in_another_runs_folder_is_named(study, capsys):
    rope, alibi = runs_of(study)
    shutil.rmtree(rope)
    shutil.copytree(alibi, rope)
    reason = f"is the record of {alibi.name} (move it to a folder of that name), not of this run"
    with pytest.raises(DamagedError, match=re.escape(f"{MANIFEST} {reason}")):
        read_manifest(rope)
    assert (load_run(rope).status, load_run(rope).reason) == ("unreadable", f"{MANIFEST} {reason}")
    listed = [(run.directory, run.status) for run in load("format3", study.parent).runs]
    assert listed == [(rope.name, "unreadable"), (alibi.name, "done")]
    assert show_status(study, follow=False) == 1
    assert reason in " ".join(capsys.readouterr().out.split())


def test_status_names_a_record_of_an_older_format(study, capsys):
    rope, _ = runs_of(study)
    write_sealed(rope / MANIFEST, {**read_sealed(rope / MANIFEST), "format": 2})
    assert show_status(study, follow=False) == 1
    printed = capsys.readouterr()
    assert printed.out.count("its record has format 2, which this version does not read: train it again") == 1
    assert "damaged" not in printed.out + printed.err


def test_a_record_must_match_its_folder_however_the_path_is_written(study, monkeypatch):
    rope, alibi = runs_of(study)
    monkeypatch.chdir(rope)
    for path in (Path(), Path("..") / rope.name, alibi / ".." / rope.name):
        assert load_run(path).status == "done"
    for directory, field in ((rope, "run"), (alibi, "identity")):
        RunRecord(directory, read_manifest(directory)).update(**{field: "0123456789ab"})
        with pytest.raises(DamagedError, match="of this run"):
            read_manifest(directory)


def test_the_list_of_another_study_is_named(study, capsys):
    (study / STUDY_LIST).write_text(sealed({**read_sealed(study / STUDY_LIST), "study": "another"}))
    reason = "is the list of study another, not of this folder"
    with pytest.raises(ReportError, match=rf"study=format3: {STUDY_LIST} {reason}; remove it"):
        load("format3", study.parent)
    with pytest.raises(ConfigError, match=reason):
        show_status(study, follow=False)
    enlist(study, [], "python train.py")
    assert reason in capsys.readouterr().err
    assert load("format3", study.parent).commands == ("python train.py",)


def test_a_list_of_a_newer_version_is_left_alone(study):
    path = study / STUDY_LIST
    path.write_text(sealed({**read_sealed(path), "format": 4}))
    content = path.read_bytes()
    for error, act in (
        (ReportError, lambda: load("format3", study.parent)),
        (UnreadableError, lambda: enlist(study, [], "python train.py")),
        (UnreadableError, lambda: show_status(study, follow=False)),
    ):
        with pytest.raises(error, match=NEWER):
            act()
    assert path.read_bytes() == content
    path.write_text(sealed({**read_sealed(path), "format": "3"}))
    with pytest.raises(DamagedError, match="has no valid format"):
        read_study_list(study)


def test_lists_of_older_versions_are_read_and_rewritten(study):
    listed = read_study_list(study)
    assert listed is not None
    assert "format" not in json.loads((study / STUDY_LIST).read_bytes())
    write_study_list(study, listed)
    assert read_study_list(study) == listed
    assert read_sealed(study / STUDY_LIST)["format"] == 3
