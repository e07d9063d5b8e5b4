"""How it was made: the checkout and the machine, where they are on record."""

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


def test_the_report_names_the_commit_and_the_machine_where_the_record_does(tmp_path):
    for study, facts in {"named": MADE_WITH, "older": {}}.items():
        write_run(tmp_path / "runs", "one", study=study, **facts)
        write_report(study, tmp_path / "runs", tmp_path)
    named, older = (
        {row["key"]: row["value"] for row in read(tmp_path / study / "facts.csv")}
        for study in ("named", "older")
    )
    assert (named["cores"], named["memory_bytes"]) == ("8", str(2**34))
    assert (named["commit"], named["modified"]) == (MADE_WITH["source"]["commit"], "true")
    assert not SHEET & older.keys()
    markdown = (tmp_path / "named" / "report.md").read_text()
    assert f"{MADE_WITH['source']['commit']}, with changes to src/ or conf/" in markdown
    page = (tmp_path / "named" / "index.html").read_text()
    assert "Some GPU, Some CPU &lt;b&gt;, 8 cores, Linux 7" in page
    assert not {"Hardware", "Commit"} & set((tmp_path / "older" / "report.md").read_text().split())


def test_the_facts_list_the_multiples_of_L_that_were_measured(tmp_path):
    write_run(tmp_path / "runs", "one", study="short", sliding={1.0: 2.0, 2.0: 2.1})
    write_report("short", tmp_path / "runs", tmp_path)
    facts = read(tmp_path / "short" / "facts.csv")
    assert [row["value"] for row in facts if row["key"] == "multiple"] == ["1.0", "2.0"]
