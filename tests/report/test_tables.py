"""Numbers of a table are in the CSV file that it names; a section is written everywhere; files are listed."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from poslab.analysis.curves import point
from poslab.analysis.results import gather
from poslab.analysis.sheets import Row, flat, sheet
from poslab.analysis.statistics import Difference, Estimate
from poslab.measures.attention_distance import AttentionDistance
from poslab.measures.retrieval import Retrieval
from poslab.measures.scheme_rotation import Rotation
from poslab.record.writer import RunRecord
from poslab.report import cells
from poslab.report.charts import LineChart, Series
from poslab.report.document import Chapter, Section
from poslab.report.sections.contents import document
from poslab.report.tables import Column, Table
from poslab.report.write import write_document, write_sheets
from support.pages import write_study
from support.records import answers, reaches, seal, turns


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """The report of a study with all kinds of arms, two of them also with tables of measurements."""
    runs = tmp_path_factory.mktemp("tables")
    write_study(runs)
    for arm in ("rope", "learned"):
        for seed in range(3):
            record = RunRecord(runs / "made_up" / f"{arm}-{seed}")
            exact = {(k, depth): 3 * seed + i for k in (1.0, 8.0) for i, depth in enumerate((0.0, 0.5, 1.0))}
            record.write_table(Retrieval.table, answers(exact, nats=1.5 + seed))
            record.write_table(Rotation.table, turns([6.25 + seed, 100.0, None]))
            record.write_table(AttentionDistance.table, reaches([[1.25 + seed, 2.0], [0.5, 3.25]]))
            seal(record.directory)
    return document(gather("made_up", runs, None))


def test_every_number_of_a_table_is_in_its_sheet(report):
    """The number behind each cell is in a CSV file of the table."""
    tables = [report.answer.table, *(table for section in report.sections for table in section.tables)]
    assert len(tables) == 10
    for table in tables:
        sheets = [report.sheets[name.removesuffix(".csv")][1] for name in table.sources]
        numbers = {value for rows in sheets for row in rows for value in row.values()}
        values = [cell.value for row in table.rows for cell in row if cell.value is not None]
        assert values
        assert [value for value in values if value not in numbers] == [], table.title


def test_a_section_in_the_list_is_on_the_page_in_markdown_and_on_disk(report, tmp_path):
    """Only the section itself defines its figures, tables and files."""
    rows: list[Row] = [{"arm": "rope", "n": 2, "made_mean": 1.25, "made_half_width": 0.5, "made_n": 2}]
    columns = (Column("arm", "Arm", cells.text, number=False), Column("made", "Made", cells.loss, "Up"))
    table = Table("A table <b>", "Its *caption*.", columns, rows, ("made.csv",))
    at = point(2.0, Estimate(2, 1.25, 0.5, 1.0, 1.5), {"multiple": 2.0})
    ticks = ((1.0, "L"), (2.0, "2 L"))
    line = LineChart("drawn", "A figure", "Seen.", "x", "y", (Series(0, "rope", (at,)),), ticks, 1.0)
    sheets = {"made": sheet(rows)}
    section = Section("new", "New & so on", "What it is.", ("Found.",), (line,), (table,), sheets)
    chapter = Chapter("more", "More & more", ("Come to.",), (section,))
    directory = write_document(replace(report, chapters=(*report.chapters, chapter)), tmp_path).directory
    first = len(report.charts) + 1
    page, markdown = ((directory / name).read_text() for name in ("index.html", "report.md"))
    assert '<section id="new">\n<h3>New &amp; so on</h3>' in page
    assert f"Figure {first}. A figure" in page
    assert "A figure" not in markdown
    assert "A table &lt;b&gt;" in page
    assert '<td data-value="1.25">1.250<span class="half"> ± 0.500</span></td>' in page
    assert "| Arm | Up: Made |\n| --- | ---: |\n| rope | 1.250 ± 0.500 |" in markdown
    assert "Its \\*caption\\*." in markdown
    assert page.count('"name":"drawn"') == 1
    assert (directory / "made.csv").read_text().startswith("arm,n,made_mean,")
    assert (directory / "drawn.csv").read_text() == (
        "arm,multiple,n,mean,half_width,lowest,highest\nrope,2.0,2,1.25,0.5,1.0,1.5\n"
    )
    assert (directory / "figures" / "drawn.svg").is_file()


def test_files_of_an_earlier_report_are_removed_and_those_of_users_stay(report, tmp_path):
    chapter = Chapter("more", "More", (), (Section("new", "New", sheets={"new": report.sheets["arms"]}),))
    directory = write_document(replace(report, chapters=(*report.chapters, chapter)), tmp_path).directory
    for name in ("mine.csv", "figures/mine.png"):
        (directory / name).write_text("mine")
    assert (directory / "new.csv").is_file()
    write_document(report, tmp_path)
    assert not (directory / "new.csv").exists()
    assert (directory / "mine.csv").is_file()
    assert (directory / "figures" / "mine.png").is_file()
    # A list that the report did not write removes nothing else.
    (directory / "files.json").write_text('["../other.csv", "report.md", 3, "figures/../index.html"]')
    (tmp_path / "other.csv").write_text("")
    write_document(report, tmp_path)
    assert (tmp_path / "other.csv").exists()


def test_a_cell_is_a_number_or_a_text_but_no_formula(tmp_path):
    arguments = [-2.0, True, "-1.5e3", "-1+2", "=A1", "-inf"]
    write_sheets(tmp_path, {"made": sheet([{"cell": value} for value in arguments])})
    cells = (tmp_path / "made.csv").read_text().splitlines()[1:]
    assert cells == ["-2.0", "true", "-1.5e3", "'-1+2", "'=A1", "'-inf"]


def test_seeds_with_equal_values_have_no_interval():
    """Three seeds that all use 64 tokens, or answer all questions, do not show that others would."""
    equal: Row = {"a_mean": 1.0, "a_half_width": 0.0, "a_n": 3}
    assert (cells.loss(equal, "a").text, cells.percent(equal, "a").text) == ("1.000", "100.0")
    assert cells.loss(equal | {"a_half_width": 0.25}, "a").text == "1.000 ± 0.250"


def test_a_row_has_three_cells_for_a_difference_and_none_for_other_objects():
    found = SimpleNamespace(arm="rope", gap=Difference(2, 0.5, 0.1, 0.01, None), losses=(1.0, 2.0), seen=True)
    row = {"arm": "rope", "gap_n": 2, "gap_mean": 0.5, "gap_half_width": 0.1, "seen": True}
    assert flat(found) == row
