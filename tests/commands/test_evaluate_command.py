"""`train.py evaluate` gives the run's own numbers if nothing is changed, and names every change."""

import math
import shutil
from dataclasses import replace

import pytest
import torch

from poslab.commands.evaluate import main
from poslab.data.cache import prepare
from poslab.record.files import write_sealed
from poslab.record.manifest import read_manifest
from poslab.study.run import plan
from support.commands import assert_refused, read
from support.models import ATTENTIONS, CONF, POSITIONS
from support.processor import needs_bfloat16
from support.runs import make, request
from support.texts import options, trained_tokenizer

L = 32
TEXT = b"def position(token, length):\n    return token % length  # of the window, from its start on\n" * 300


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Finished runs by name: rope with all measurements, a trial, and three runs on a text."""
    folder = tmp_path_factory.mktemp("evaluate")
    (folder / "text.txt").write_bytes(TEXT)
    text = {"source": "text", "path": str(folder / "text.txt")}
    asked = {
        "rope": {
            "evaluate__rescale": ["none", "ntk", "drop"],
            "evaluate__recalibration_steps": 2,
            "probe": {"tasks": ["copy"], "share": 0.25, "samples": 4, "depths": 2},
            "context_length": 3 * L,
        },
        "alibi": {"pos": POSITIONS["alibi"], "attention": ATTENTIONS["softmax"], "part": "tuning"},
        "bytes": {"data": {**text, "vocabulary": "bytes"}},
        "entries": {"data": {**text, "vocabulary": 300}},
        "file": {
            "data": {**text, "vocabulary": str(trained_tokenizer(folder / "mine.json", [TEXT.decode()]))}
        },
    }
    short = {"trainer__max_steps": 4, "trainer__warmup_steps": 1, "model__layers": 1}
    found = {}
    for name, changes in asked.items():
        manifest = make(request(**short, **changes), folder / "runs")
        assert manifest.status == "done", manifest.reason
        found[name] = folder / "runs" / "test" / manifest.run
    return found


@pytest.fixture
def run_command(runs, tmp_path, monkeypatch, capsys):
    """Call the command in a separate directory, without W&B; its status and output."""
    shutil.copy(runs["bytes"].parent.parent.parent / "text.txt", tmp_path)
    monkeypatch.chdir(tmp_path)

    def call(directory, *settings):
        status = main([f"checkpoint={directory}", *settings])
        shown = capsys.readouterr()
        return status, shown.out, shown.err

    return call


def only_evaluation(folder):
    """Return the only evaluation in the folder."""
    (directory,) = (folder / "evaluations").glob("[!.]*")
    return directory


@pytest.mark.parametrize("name", ["rope", "alibi", "bytes", "entries", "file"])
def test_without_changes_it_gives_the_numbers_of_the_run(runs, run_command, tmp_path, name):
    torch.set_num_threads(2)  # the run had one thread, and the evaluation uses as many
    status, out, _ = run_command(runs[name])
    assert (status, torch.get_num_threads()) == (0, 2)
    record = read_manifest(only_evaluation(tmp_path))
    assert record.threads == 1
    assert not (only_evaluation(tmp_path) / "wandb").exists()
    tables = set(read_manifest(runs[name]).tables) - {"metrics.csv"}
    assert tables == set(record.files) - {"metrics.csv"}
    for file in tables:
        assert read(only_evaluation(tmp_path) / file) == read(runs[name] / file), file
    assert "the same numbers, to the last digit, as the run's own record" in out
    assert (record.changed, record.kernel) == ({}, read_manifest(runs[name]).kernel)


def test_the_table_has_the_recorded_numbers(runs, run_command, tmp_path):
    _, out, _ = run_command(runs["bytes"], "evaluate.rescale=[none,ntk]")
    sums = {}
    for file, name in (("extrapolation.csv", "rope / flash"), ("rescaled.csv", "rope, ntk")):
        for row in read(only_evaluation(tmp_path) / file):
            total = sums.setdefault((name, row["protocol"]), {}).setdefault(row["multiple"], [0.0, 0])
            total[0] += float(row["nll"])
            total[1] += int(row["tokens"])
    assert not [line for line in out.splitlines() if line != line.rstrip()]  # without trailing blanks
    lines = [line.split() for line in out.splitlines()]
    assert lines[1] == ["scheme", "windows", "L/2", "L", "2", "L", "4", "L"]
    expected = [
        [*(name.split() if protocol == "non_overlapping" else []), protocol.replace("_", "-")]
        + [f"{nll / tokens:.3f}" for nll, tokens in sums[name, protocol].values()]
        for name in ("rope / flash", "rope, ntk")
        for protocol in ("non_overlapping", "sliding")
    ]
    assert lines[3:7] == expected


def test_other_code_is_named_and_whether_the_numbers_are_the_same(runs, run_command, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(runs["alibi"], copy)
    write_sealed(copy / "manifest.json", {**read_manifest(copy, anywhere=True).as_json(), "code": "0" * 16})
    status, out, _ = run_command(copy)
    assert status == 0
    assert "note: evaluated by other code than the run" in out
    assert "note: the same numbers, to the last digit, as the run's own record" in out


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("alibi", "evaluate.longest=2"),
        ("alibi", "evaluate.segments=2"),
        ("alibi", "evaluate.sliding_windows=5"),
        ("bytes", "evaluate.rescale=[none,pi]"),
        ("rope", "evaluate.rescale_factor=2"),
        pytest.param("alibi", "trainer.precision=bfloat16", marks=needs_bfloat16),
        ("alibi", "data.seed=1"),
        ("alibi", "data=text data.path=text.txt"),
    ],
)
def test_every_setting_changes_the_recorded_numbers(runs, run_command, tmp_path, name, setting):
    status, out, err = run_command(runs[name], *setting.split())
    assert status == 0, err
    record = read_manifest(only_evaluation(tmp_path))
    own = read_manifest(runs[name]).files
    assert any(own.get(name) != digest for name, digest in record.files.items())
    key, value = setting.split()[-1].split("=", 1)
    assert key in record.changed
    assert f"{key}: {value} instead of " in out
    assert "same numbers" not in out
    noted = "note: other parts of the text are scored" in out
    assert noted is (key in ("evaluate.longest", "evaluate.segments"))


def test_an_evaluation_is_reused_if_record_and_code_are_unchanged(runs, run_command, tmp_path, monkeypatch):
    _, first, _ = run_command(runs["bytes"], "evaluate.longest=2", f"data.path={tmp_path}/text.txt")
    table = only_evaluation(tmp_path) / "extrapolation.csv"
    before = table.stat().st_mtime_ns
    status, again, err = run_command(runs["bytes"] / "checkpoint.pt", "evaluate.longest=2")
    assert (status, again) == (0, first)  # wherever the text is stored
    assert "has the same evaluation, which is shown" in err
    assert table.stat().st_mtime_ns == before
    content = table.read_text()
    table.write_text(content.replace("nll", "nII"))
    status, again, err = run_command(runs["bytes"], "evaluate.longest=2")
    assert (status, again) == (0, first)
    assert "extrapolation.csv is damaged" in err
    assert table.read_text() == content
    own = plan.code_fingerprints
    monkeypatch.setattr(plan, "code_fingerprints", lambda run: replace(own(run), evaluation="0" * 16))
    status, _, err = run_command(runs["bytes"], "evaluate.longest=2")
    assert (status, "has the same evaluation" in err) == (0, False)


OTHER = TEXT.replace(b"window", b"stretch of tokens, long or short,")
OF_A_FILE = ["data=text", "data.path=other.txt"]
OF_AN_OPTION = ["--config-dir", "mine", "data=another"]


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("bytes", []),
        ("entries", []),
        ("entries", OF_A_FILE),
        ("file", OF_A_FILE),
        ("entries", OF_AN_OPTION),
    ],
)
def test_other_text_is_named_and_tokenized_as_in_the_run(runs, run_command, tmp_path, name, settings):
    """A text that has changed on disk, another file, or the text of a user's option."""
    for file in ("text.txt", "other.txt"):
        (tmp_path / file).write_bytes(OTHER)
    option = tmp_path / "mine" / "data" / "another.yaml"
    option.parent.mkdir(parents=True)
    shutil.copy(CONF / "data" / "copy.yaml", option)
    assert not (tmp_path / "mine.json").exists()  # the tokenizer's file was removed
    status, out, err = run_command(runs[name], *settings)
    assert status == 0, err
    record, trained = read_manifest(only_evaluation(tmp_path)), read_manifest(runs[name])
    assert record.config["data"]["vocabulary"] == trained.config["data"]["vocabulary"]
    assert record.data.vocabulary == trained.data.vocabulary
    if settings is OF_A_FILE:
        assert set(record.changed) == {"data.path"}
    (note,) = record.notes
    assert f"note: {note}" in out
    assert "not on the training text" in note
    assert "may be a part of the training text" in note
    for each in (trained, record):
        assert each.data.fingerprint[:12] in note
    if name == "bytes":  # for which nats per byte are printed
        return
    if settings is not OF_AN_OPTION:
        own = {"path": str(tmp_path / "other.txt"), "vocabulary": str(runs[name] / "tokenizer.json")}
        assert record.data.fingerprint == prepare({**options("text"), **own}).fingerprint
    table = read(only_evaluation(tmp_path) / "extrapolation.csv")
    sliding = [one for one in table if (one["protocol"], one["multiple"]) == ("sliding", "1")]
    nats, size = (sum(float(one[key]) for one in sliding) for key in ("nll", "bytes"))
    (line,) = (line for line in out.splitlines() if line.startswith("Bits per byte"))
    assert f"{nats / math.log(2) / size:.3f} at L," in line


def test_only_the_runs_own_tokenizer_may_be_named(runs, run_command, tmp_path):
    (tmp_path / "other.txt").write_bytes(OTHER)
    other = ["data=text", "data.path=other.txt"]
    shutil.copy(runs["file"] / "tokenizer.json", tmp_path / "same.json")
    (tmp_path / "another.json").write_bytes((runs["entries"] / "tokenizer.json").read_bytes())
    assert run_command(runs["file"], *other, "data.vocabulary=same.json")[0] == 0
    for name, file, expected in (
        ("file", "another.json", "another.json is not the tokenizer that the model was trained with"),
        ("file", "gone.json", "gone.json cannot be read"),
        ("bytes", "same.json", "the model reads bytes: leave data.vocabulary out"),
        ("entries", "same.json", "the model reads its own BPE of 300 tokens"),
    ):
        assert_refused(run_command(runs[name], *other, f"data.vocabulary={file}"), expected)


def test_a_missing_or_changed_tokenizer_is_refused_in_one_line(runs, run_command, tmp_path):
    (tmp_path / "other.txt").write_bytes(OTHER)
    copy = tmp_path / "copy"
    shutil.copytree(runs["file"], copy)
    kept = copy / "tokenizer.json"
    content = kept.read_bytes()
    for word in ("damaged", "missing"):
        kept.write_bytes(content + b" ") if word == "damaged" else kept.unlink()
        assert_refused(run_command(copy, "data=text", "data.path=other.txt"), f"tokenizer.json is {word}")
    # A record of an earlier version has no tokenizer, so it can be evaluated only on its own text.
    manifest = read_manifest(copy, anywhere=True).as_json()
    del manifest["files"]["tokenizer.json"]
    write_sealed(copy / "manifest.json", manifest)
    (tmp_path / "mine.json").write_bytes(content)
    assert_refused(run_command(copy, "data=text", "data.path=other.txt"), "record has no tokenizer.json")
    assert run_command(copy)[0] == 0


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("trainer.max_steps=3", "cannot be set for an evaluation; these can: evaluate."),
        ("evaluate.longest=2,4", "one value for each setting"),
        ("evaluate.longest", "cannot be parsed"),
        ("evaluate.longest=2 evaluate.longest=4", "evaluate.longest appears twice"),
        ("evaluate.rescale=[none,ntk]", "is for rotations, and pos.scheme=alibi has none"),
        ("data=nothing", "data=nothing does not exist; the options are copy, "),
        ("data.path=x", "data.path is not a setting"),
        ("data.tokens=600", "evaluation at 4 x 32 needs"),
        ("logger.project=x", "has no project"),
    ],
)
def test_settings_without_effect_are_refused_in_one_line(runs, run_command, tmp_path, settings, expected):
    assert_refused(run_command(runs["alibi"], *settings.split()), expected)
    assert not (tmp_path / "evaluations").exists()


def test_unfinished_runs_and_other_folders_are_refused_in_one_line(runs, run_command, tmp_path):
    copy = tmp_path / "copy"
    checkpoint = copy / "checkpoint.pt"
    assert_refused(run_command(tmp_path / "gone"), "does not exist: name a run directory")
    shutil.copytree(runs["alibi"], copy)
    another = shutil.copytree(copy, tmp_path / "alibi-flash-seed0-0123456789ab")
    assert_refused(run_command(another), f"is the record of {runs['alibi'].name} ")
    content = checkpoint.read_bytes()
    checkpoint.unlink()
    assert_refused(run_command(copy), "checkpoint.pt is missing")
    checkpoint.write_bytes(content)
    manifest = read_manifest(copy, anywhere=True).as_json()
    write_sealed(copy / "manifest.json", {**manifest, "status": "running"})
    assert_refused(run_command(copy), "the run is running, not done")
    write_sealed(copy / "manifest.json", {**manifest, "run": "../elsewhere"})
    assert_refused(run_command(copy), "cannot be the name of a directory")
    assert not (tmp_path / "evaluations").exists()
