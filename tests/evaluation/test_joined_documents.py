"""Documents shorter than the longest window are joined for the evaluation."""

import pytest

from poslab.commands.evaluate import main
from poslab.config.schema import ConfigError
from poslab.record.manifest import read_manifest
from poslab.report.render.terminal import show
from poslab.report.write import write_report
from poslab.study.run.plan import plan
from support.commands import read
from support.records import write_run
from support.runs import make, request
from support.texts import write_short_documents

SHORT = {"trainer__max_steps": 2, "trainer__warmup_steps": 1, "model__layers": 1}


@pytest.fixture
def text(tmp_path):
    path = write_short_documents(tmp_path / "short")
    return {"source": "text", "path": str(path), "vocabulary": "bytes"}


def test_a_run_on_short_documents_is_refused_unless_they_are_joined(text, tmp_path, monkeypatch, capsys):
    """Trained on joined documents, then evaluated inside single ones at a shorter length."""
    monkeypatch.chdir(tmp_path)
    asked = {"data": text, "evaluate__segments": 5, **SHORT}
    with pytest.raises(ConfigError, match=r"evaluate\.documents=joined"):
        plan(request(**asked), tmp_path / "runs")
    joined = request(**asked, evaluate__documents="joined")
    manifest = make(joined, tmp_path / "runs")
    assert manifest.status == "done", manifest.reason
    assert manifest.config["evaluate"]["documents"] == "joined"
    directory = tmp_path / "runs" / "test" / str(manifest.run)
    lengths = [row for row in read(directory / "extrapolation.csv") if row["protocol"] == "non_overlapping"]
    assert {row["segment"] for row in lengths} == {"0", "1", "2", "3", "4"}
    assert len({row["document"] for row in lengths}) == 5  # one per group, since there are more groups
    capsys.readouterr()
    single = ["evaluate.documents=single", "evaluate.longest=1", "evaluate.segments=500"]
    assert main([f"checkpoint={directory}", "logger=local", *single]) == 0
    (found,) = (tmp_path / "evaluations").glob("[!.]*")
    again = [row for row in read(found / "extrapolation.csv") if row["protocol"] == "non_overlapping"]
    count = len({row["segment"] for row in again})
    assert 0 < count < 500
    assert f"{count} of the 500 segments" in " ".join(capsys.readouterr().out.split())
    changed = read_manifest(found)
    assert changed.changed["evaluate.documents"] == ["joined", None]


@pytest.mark.parametrize("documents", ["single", "joined"])
def test_page_and_terminal_name_the_number_of_segments(documents, tmp_path, capsys):
    config = {"evaluate": {"segments": 64, "documents": documents}}
    write_run(tmp_path / "runs", "rope-0", config=config)  # whose record has three segments
    report = write_report("made_up", tmp_path / "runs", tmp_path / "reports")
    show(report)
    page = report.page.read_text()
    for shown in (capsys.readouterr().out, page, report.page.with_name("report.md").read_text()):
        shown = " ".join(shown.split())
        assert "3 of the 64 segments" in shown
        assert ("concatenated" in shown) == (documents == "joined")
