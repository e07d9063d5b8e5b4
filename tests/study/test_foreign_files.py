"""Foreign files among a run's files are ignored and left alone."""

import hashlib
import shutil
from pathlib import Path
from typing import Any

import pytest

from poslab.config.schema import ConfigError
from poslab.record.files import remove_unfinished, write_sealed
from poslab.record.manifest import remove_record
from poslab.record.reader import load_run
from poslab.record.schema import FORMAT, MANIFEST
from poslab.study.reuse import take_over
from poslab.study.run.job import Job
from poslab.study.run.plan import plan
from poslab.training.checkpoints import newest_checkpoint
from poslab.training.trained import load_model
from support.checkpoints import from_bytes, rewrite_weights, to_bytes
from support.runs import make, request, stopped_at

WANTED = {"trainer__max_steps": 12, "trainer__checkpoint_seconds": 0.0, "model__layers": 1}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs stopped during training, and the first one run without interruption."""
    folder = tmp_path_factory.mktemp("made")
    for seed in (0, 1):
        stopped_at(7, request(seed=seed, **WANTED), folder / "runs")
    assert make(request(**WANTED), folder / "peace").status == "done"
    return folder


@pytest.fixture
def stopped(runs, tmp_path):
    shutil.copytree(runs / "runs", tmp_path / "runs")
    return plan(request(**WANTED), tmp_path / "runs")


def states(job: Job) -> list[Path]:
    return sorted((job.directory / "checkpoints").glob("*.pt"))


def replace_newest(job: Job, content: object) -> Path:
    """Replace the newest state by `content`, under a name with its checksum."""
    data = content if isinstance(content, bytes) else to_bytes(content)  # type: ignore[arg-type]
    newest = states(job)[-1]
    newest.unlink()
    path = newest.with_name(f"{newest.name[:8]}-{hashlib.sha256(data).hexdigest()[:16]}.pt")
    path.write_bytes(data)
    return path


def without(state: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in state.items() if name != key}


FOREIGN = {
    "no tensors": (lambda state: b"no tensors", "is not a state of a run"),
    "another format": (
        lambda state: {**state, "format": 2},
        "has format 2, which this version does not read",
    ),
    "another run": (lambda state: {**state, "identity": "0123456789ab"}, "is a state of another run"),
}


@pytest.mark.parametrize("case", FOREIGN)
def test_a_foreign_state_is_named_and_skipped(case, stopped):
    change, reason = FOREIGN[case]
    before, newest = states(stopped)
    path = replace_newest(stopped, change(from_bytes(newest.read_bytes())))
    notes = []
    state = newest_checkpoint(path.parent, stopped.identity, notes.append)
    assert state["global_step"] == int(before.name[:8])
    (note,) = notes
    assert f"{path} {reason}" in note
    assert path.exists()


def test_files_of_others_stay(stopped, tmp_path):
    """Folders of editors, hidden files of users, and linked files stay; leftovers of a kill are removed."""
    folder, elsewhere = stopped.directory / "checkpoints", tmp_path / "elsewhere"
    elsewhere.mkdir()
    name = states(stopped)[-1].name
    ours = [stopped.directory / ".metrics.csv.ab12cd_9", folder / f".{name}.abcd1234"]
    others = [
        stopped.directory / ".ipynb_checkpoints" / "manifest.json",
        stopped.directory / ".manifest.json.abcd1234" / "a folder",
        stopped.directory / ".notes.csv.abcd1234",
        stopped.directory / ".metrics.csv.abcd12345",
        folder / "notes.pt",
        elsewhere / "mine",
    ]
    for path in (*ours, *others):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    links = [stopped.directory / ".position.csv.abcd1234", folder / f".{name}.abcd9876"]
    for path in links:
        path.symlink_to(elsewhere / "mine")
    assert make(stopped.request, stopped.directory.parent.parent).status == "done"
    assert not any(path.exists() for path in ours)
    assert all(path.read_text() == "x" for path in (*others, *links))
    assert not states(stopped)[:-1], "notes.pt is all that is left"


def test_no_unfinished_file_is_removed_through_a_linked_folder(stopped, tmp_path):
    folder, elsewhere = stopped.directory / "checkpoints", tmp_path / "elsewhere"
    folder.rename(elsewhere)
    folder.symlink_to(elsewhere)
    hidden = [elsewhere / ".hidden", elsewhere / f".{states(stopped)[-1].name}.abcd1234"]
    for path in hidden:
        path.write_text("x")
    remove_unfinished(folder, lambda name: True)
    assert make(stopped.request, stopped.directory.parent.parent).status == "done"
    assert all(path.read_text() == "x" for path in hidden)
    assert folder.is_symlink()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda saved: {**saved, "format": 3}, "has format 3, which this version does not read"),
        (lambda saved: {**saved, "identity": "0123456789ab"}, "is a state of another run"),
        (
            lambda saved: {**saved, "weights": without(saved["weights"], "norm.weight")},
            "the weights do not fit the model",
        ),
    ],
)
def test_weights_of_another_format_run_or_model_are_refused(change, message, runs, tmp_path):
    source = plan(request(**WANTED), runs / "peace").directory
    directory = Path(shutil.copytree(source, tmp_path / source.name))
    rewrite_weights(directory, change)
    with pytest.raises(ConfigError, match=message):
        load_model(directory)


def test_only_the_files_of_a_record_are_removed_with_it(tmp_path):
    directory, linked = tmp_path / "run", tmp_path / "linked"
    directory.mkdir()
    for name in ("manifest.json", "metrics.csv", ".metrics.csv", "notes.txt"):
        (directory / name).write_text("x")
    linked.symlink_to(directory)
    remove_record(linked)
    assert (directory / "metrics.csv").exists()
    remove_record(directory)
    assert sorted(path.name for path in directory.iterdir()) == [".metrics.csv", "notes.txt"]
    remove_record(directory)  # it has no record any more
    assert directory.exists()


def test_a_copy_left_by_a_killed_command_is_replaced(runs, tmp_path):
    other = plan(request("other", **WANTED), tmp_path / "runs")
    shutil.copytree(runs / "peace", tmp_path / "runs", dirs_exist_ok=True)
    left = other.directory.with_name(f".{other.directory.name}.copy")
    left.mkdir(parents=True)
    (left / "metrics.csv").write_text("half of a table")
    assert take_over([other]) == (["test"], 0)
    assert other.settled
    assert not left.exists()


def test_weights_that_cannot_be_reused_are_taken_from_the_next_study(runs, tmp_path):
    for study in ("one", "two"):
        shutil.copytree(runs / "peace" / "test", tmp_path / study)
    (first,) = (path.parent for path in (tmp_path / "one").glob("*/manifest.json"))
    rewrite_weights(first, lambda saved: {**saved, "format": 3})
    other = plan(request("three", evaluate__longest=2, **WANTED), tmp_path)
    assert take_over([other]) == ([], 1)


def test_a_record_of_a_newer_version_is_neither_repeated_nor_reused(tmp_path):
    job = plan(request("one"), tmp_path)
    manifest = job.directory / MANIFEST
    write_sealed(manifest, {"format": FORMAT + 1, "status": "done", "seed": "of another type"})
    content = manifest.read_bytes()
    assert (job.run_status.status, job.run_status.damage, job.settled) == ("newer", (), False)
    assert load_run(job.directory).status == "newer"
    with pytest.raises(ConfigError, match="use the version of poslab that wrote it"):
        make(job.request, tmp_path)
    assert manifest.read_bytes() == content
    other = plan(request("two"), tmp_path)
    assert take_over([other]) == ([], 0)
    assert not other.directory.exists()
