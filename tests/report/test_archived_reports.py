"""Reports from archived records equal those from the run directories."""

import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from poslab.commands.report import main
from poslab.record.archive import ARCHIVE
from poslab.record.files import write_sealed
from poslab.record.seal import read_sealed
from support.commands import ROOT, read
from support.records import L, contents, plan, write_rescaled, write_run, write_scheme

STUDY = "made.up-1.2"


def made(folder: Path) -> dict[str, bytes]:
    """Return the files of a report, without its records."""
    return {name: content for name, content in contents(folder).items() if name != ARCHIVE}


def write_study(runs: Path) -> None:
    """Write a study with every kind of run, and paths of the machine in its records."""
    for seed in (0, 1):
        shift = 0.02 * seed
        write_rescaled(runs, f"rope-{seed}", {}, seed=seed, study=STUDY, shift=shift)
        link = {"id": f"{seed}", "mode": "online", "url": f"https://wandb.ai/me/poslab/runs/{seed}"}
        write_scheme(
            runs, f"alibi-{seed}", pos="alibi", seed=seed, study=STUDY, shift=0.1 - shift, wandb=link
        )
    write_run(runs, "fox", pos="fox", study=STUDY, status="diverged", reason="no number at step 20")
    write_run(runs, "dead", pos="t5", study=STUDY, status="failed", reason="no /home/me/texts/corpus.txt")
    write_run(runs, "going", pos="t5", seed=1, study=STUDY, status="running")
    (write_run(runs, "lacking", pos="fire", study=STUDY) / "position.csv").unlink()
    (write_run(runs, "torn", study=STUDY) / "manifest.json").write_text('{"reason": "/home/me/x"')
    older = write_run(runs, "older", study=STUDY) / "manifest.json"
    write_sealed(older, {**read_sealed(older), "format": 2})
    plan(runs, ["alibi-0", "alibi-1", "rope-0", "rope-1", "never"], "rope", study=STUDY)


def test_a_study_is_reported_from_its_archive(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_study(tmp_path / "runs")
    folder = Path("reports", STUDY)
    assert main([f"study={STUDY}"]) == 0
    assert ARCHIVE not in capsys.readouterr().out
    first = made(folder)
    assert {"index.html", "report.md", "summary.csv", "figures/validation_loss.pdf"} <= first.keys()
    assert main([f"study={STUDY}", "keep=true"]) == 0
    assert re.search(rf"\nrecords: {folder / ARCHIVE}, \d+ kB, archived beside", capsys.readouterr().out)
    assert made(folder) == first
    # On another machine.
    records = (folder / ARCHIVE).read_bytes()
    for name in ("runs", "reports"):
        shutil.rmtree(name)
    folder.mkdir(parents=True)
    (folder / ARCHIVE).write_bytes(records)
    assert main([f"study={STUDY}"]) == 0
    shown = capsys.readouterr().out
    sentence = f"The records of study={STUDY} come from the archive {folder / ARCHIVE}."
    assert " ".join(shown.split()).endswith(sentence)
    assert made(folder) == first
    assert (folder / ARCHIVE).read_bytes() == records
    statuses = {row["run"]: row["status"] for row in read(folder / "summary.csv")}
    assert statuses == {
        **dict.fromkeys(("rope-0", "rope-1", "alibi-0", "alibi-1"), "done"),
        "fox": "diverged",
        "dead": "failed",
        "going": "running",
        "lacking": "unreadable",
        "torn": "unreadable",
        "older": "older",
        "never": "not started",
    }
    assert b"https://wandb.ai/me/poslab/runs/1" in first["index.html"]
    assert [path for path in tmp_path.rglob(".*") if path.is_file()] == []


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """Studies a and b in runs/; a is archived in reports/."""
    folder = tmp_path_factory.mktemp("two")
    for study, shift in (("a", 0.0), ("b", 0.1)):
        write_run(folder / "runs", "rope-0", study=study, shift=shift)
        write_run(folder / "runs", "alibi-0", pos="alibi", study=study, shift=0.2 + shift)
    assert main(["study=a", f"runs={folder}/runs", f"reports={folder}/reports", "keep=true"]) == 0
    return folder


@pytest.fixture
def two(template, tmp_path, monkeypatch):
    """A copy of the template as the working directory."""
    monkeypatch.chdir(shutil.copytree(template, tmp_path / "two"))
    return tmp_path / "two"


def test_archived_records_are_those_of_their_report(two):
    """Also after damage and more runs, without another keep=true; equal records are not rewritten."""
    path = Path("reports/a", ARCHIVE)
    archived = path.read_bytes()
    before = path.stat()
    assert main(["study=a"]) == 0
    assert path.stat() == before
    path.write_bytes(archived[:-50])
    assert main(["study=a"]) == 0
    assert path.read_bytes() == archived
    write_run(two / "runs", "fox-0", pos="fox", study="a", config={"context_length": L})
    assert main(["study=a"]) == 0
    assert path.read_bytes() != archived
    first = made(path.parent)
    shutil.rmtree("runs")
    assert main(["study=a"]) == 0
    assert made(path.parent) == first
    assert b"fox-0" in first["summary.csv"]


def test_an_archive_with_other_runs_is_replaced_only_on_request(two, capsys):
    """As in a checkout with an archive from another machine."""
    path = Path("reports/a", ARCHIVE)
    archive = path.read_bytes()
    shutil.rmtree("runs/a/rope-0")
    assert main(["study=a"]) == 0
    assert path.read_bytes() == archive
    assert f"{path} was not updated: it has 1 run" in " ".join(capsys.readouterr().out.split())
    assert main(["study=a", "keep=true"]) == 0
    assert path.read_bytes() != archive


def test_files_of_a_study_in_git_are_small():
    """A study has at most 1 MB, and all reports together 10 MB."""
    command = ["git", "-C", str(ROOT), "ls-files", "reports"]
    sizes: Counter[str] = Counter()
    for name in subprocess.check_output(command, text=True).splitlines():
        sizes[Path(name).parts[1]] += (ROOT / name).stat().st_size
    assert sizes.total() < 10e6
    assert {study: size for study, size in sizes.items() if size > 1e6} == {}
