"""How it was made: the checkout and the machine, where they are on record."""

from pathlib import Path

import pytest

from poslab.report.write import write_report
from support.records import read, write_run

pytestmark = pytest.mark.usefixtures("undrawn")

MADE_WITH = {
    "source": {"commit": "c0ffee" + "0" * 34, "modified": True},
    "hardware": {
        "processor": "Some CPU <b>",
        "gpus": ["Some GPU"],
        "cores": 8,
        "memory_bytes": 2**34,
        "system": "Linux 7",
    },
}
SHEET = {"commit", "modified", "gpu", "processor", "cores", "memory_bytes", "system"}


def written(runs: Path) -> tuple[str, str, dict[str, str]]:
    """The page, the Markdown and facts.csv of a report."""
    folder = write_report("made_up", runs, runs.parent / "reports").directory
    facts = {row["key"]: row["value"] for row in read(folder / "facts.csv")}
    return (folder / "index.html").read_text(), (folder / "report.md").read_text(), facts


def test_the_report_names_the_commit_and_the_machine(tmp_path):
    write_run(tmp_path / "runs", "one", **MADE_WITH)
    page, markdown, facts = written(tmp_path / "runs")
    assert f"{MADE_WITH['source']['commit']}, with changes to src/ or conf/" in markdown
    assert "Some GPU, Some CPU &lt;b&gt;, 8 cores, Linux 7" in page
    assert (facts["cores"], facts["memory_bytes"]) == ("8", str(2**34))
    assert (facts["commit"], facts["modified"]) == (MADE_WITH["source"]["commit"], "true")


def test_of_older_records_nothing_is_said_of_either(tmp_path):
    write_run(tmp_path / "runs", "one")
    page, markdown, facts = written(tmp_path / "runs")
    assert not SHEET & facts.keys()
    assert "Hardware" not in page + markdown
    assert "Commit" not in page + markdown
