"""What a table shows is in the CSV file that it names; a section is written whole, and files are known."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from poslab.analysis.curves import point
from poslab.analysis.results import gather
from poslab.analysis.sheets import Row, sheet
from poslab.analysis.statistics import Estimate
from poslab.report import cells
from poslab.report.charts import LineChart, Series
from poslab.report.document import Chapter, Document, Section
from poslab.report.sections.contents import document
from poslab.report.tables import Column, Table
from poslab.report.write import write_document
from support.records import (
    LINES,
    L,
    add_rescaled,
    answers,
    biases,
    bounds,
    plan,
    reaches,
    rescaling_config,
    turns,
    write_scheme,
)

pytestmark = pytest.mark.usefixtures("undrawn")

SEEDS = 3
# The loss at L over rope's, and what each doubling past L adds to it.
ARMS = {
    "rope": (0.0, 0.15), "rope_500": (0.02, 0.12), "t5": (-0.05, 0.02), "alibi": (-0.1, -0.01),
    "kerple_log": (-0.02, 0.0), "fire": (-0.03, 0.1), "learned": (0.1, 0.0),
    "nope": (0.2, 0.3),
}  # fmt: skip
BIASED = ("alibi", "kerple_log")
TURNING = {"rope": 100.0, "rope_500": 57.25}


def write_study(runs: Path) -> None:
    """Eight arms of three seeds; one run diverged, one failed, nope misses targets, learned ends at L."""
    names = []
    for number, (pos, (shift, slope)) in enumerate(ARMS.items()):
        for seed in range(SEEDS):
            name, noise = f"{pos}-s{seed}", random.Random(f"{pos} {seed}")
            here = shift + random.Random(seed).gauss(0, 0.03) + noise.gauss(0, 0.01)
            sliding = {2.0**i: 2 + slope * i + (noise.gauss(0, 0.005) if i else 0) for i in range(4)}
            lengths = (1.0, 2.0, 8.0)
            ends = {}
            if pos == "learned":
                sliding, lengths, ends = {1.0: 2.0}, (1.0,), {"max_length": L}
            lost = {
                ("fire", 2): ("diverged", "the loss is not finite at step 73"),
                ("t5", 1): ("failed", "out of 16 GiB"),
            }
            if (pos, seed) in lost:
                ends["status"], ends["reason"] = lost[pos, seed]
            cells = {(k, d): noise.randrange(11) for k in lengths for d in (0.0, 0.25, 1.0)}
            directory = write_scheme(
                runs,
                name,
                answers(cells, nats=1 + noise.random()),
                biases([0.5 + noise.random() / 10, 0.25], list(range(40))) if pos in BIASED else None,
                turns([6.25, TURNING[pos], None]) if pos in TURNING else None,
                bounds({1: 0.9, 2: 0.7, 8: 0.3 + noise.random() / 10}) if pos in TURNING else None,
                reaches([[1 + noise.random(), 2.0], [0.5, 3 + noise.random()]]),
                pos=pos,
                seed=seed,
                shift=here,
                sliding=sliding,
                config=rescaling_config("pi", "yarn") if pos == "rope" else rescaling_config(),
                parameters=1000 + 8 * number,
                seconds=100 + 10 * noise.random(),
                versions={"torch": "2.13.0", "python": "3.14"},
                code=f"{17 * number:02d}e4b{number}",
                wandb={"mode": "offline"},
                **ends,
            )  # fmt: skip
            if pos == "rope":
                add_rescaled(directory, LINES, here)
            names.append(name)
    plan(runs, names, "rope")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Document:
    runs = tmp_path_factory.mktemp("tables")
    write_study(runs)
    return document(gather("made_up", runs, None))


def test_every_cell_of_a_table_is_a_number_of_its_sheet(made: Document) -> None:
    """A cell keeps the number that it shows: it is in the CSV file that the table is a view of."""
    tables = [made.answer.table, *(table for section in made.sections for table in section.tables)]
    assert len(tables) == 10
    for table in tables:
        sheets = [made.sheets[name.removesuffix(".csv")][1] for name in table.sources]
        numbers = {value for rows in sheets for row in rows for value in row.values()}
        values = [cell.value for row in table.rows for cell in row if cell.value is not None]
        assert values
        assert [value for value in values if value not in numbers] == [], table.title


def test_a_table_shows_the_cells_of_its_sheet_and_no_others(made: Document) -> None:
    """Another number in a row of the CSV file is another text in the table."""
    (table,) = made.sections[0].tables
    changed = [{**row, "sliding_8x_mean": 123.456} for row in table.records]
    column = next(i for i, column in enumerate(table.columns) if column.key == "sliding_8x")
    for old, new in zip(table.rows, replace(table, records=changed).rows, strict=True):
        assert new[column].text.startswith("123.")
        assert new[:column] == old[:column]
        assert new[column + 1 :] == old[column + 1 :]


def test_a_section_in_the_list_is_on_the_page_in_markdown_and_on_disk(made: Document, tmp_path: Path) -> None:
    """Nothing but the section itself is told about its figures, tables and files."""
    rows: list[Row] = [{"arm": "rope", "n": 2, "made_mean": 1.25, "made_half_width": 0.5, "made_n": 2}]
    columns = (Column("arm", "Arm", cells.text, number=False), Column("made", "Made", cells.loss, "Up"))
    table = Table("A table <b>", "Its *caption*.", columns, rows, ("made.csv",))
    at = point(2.0, Estimate(2, 1.25, 0.5, 1.0, 1.5), {"multiple": 2.0})
    ticks = ((1.0, "L"), (2.0, "2 L"))
    line = LineChart("drawn", "A figure", "Seen.", "x", "y", 2, ticks, 1.0, (Series(0, "rope", (at,)),))
    sheets = {"made": sheet(rows)}
    section = Section("new", "New & so on", "What it is.", ("Found.",), (line,), (table,), sheets)
    chapter = Chapter("more", "More & more", ("Come to.",), (section,))
    directory = write_document(replace(made, chapters=(*made.chapters, chapter)), tmp_path).directory
    first = len(made.charts) + 1
    page, markdown = ((directory / name).read_text() for name in ("index.html", "report.md"))
    assert '<section id="new">\n<h3>New &amp; so on</h3>' in page
    assert f"Figure {first}. A figure" in page
    assert f"**Figure {first}. A figure**" in markdown
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


def test_files_of_an_earlier_report_are_removed_and_those_of_users_stay(
    made: Document, tmp_path: Path
) -> None:
    chapter = Chapter("more", "More", (), (Section("new", "New", sheets={"new": made.sheets["arms"]}),))
    directory = write_document(replace(made, chapters=(*made.chapters, chapter)), tmp_path).directory
    for name in ("mine.csv", "figures/mine.png"):
        (directory / name).write_text("mine")
    assert (directory / "new.csv").is_file()
    write_document(made, tmp_path)
    assert not (directory / "new.csv").exists()
    assert (directory / "mine.csv").is_file()
    assert (directory / "figures" / "mine.png").is_file()
    # A list that is not the report's own removes nothing else.
    (directory / "files.json").write_text('["../other.csv", "report.md", 3, "figures/../index.html"]')
    (tmp_path / "other.csv").write_text("")
    write_document(made, tmp_path)
    assert (tmp_path / "other.csv").exists()
