"""Hostile names and texts: nothing runs in Chromium, and nothing is written elsewhere."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest

from poslab.analysis.results import gather
from poslab.commands.status import main as status
from poslab.record.files import write_sealed
from poslab.report.render import paper
from poslab.report.render.page import page
from poslab.report.render.terminal import show
from poslab.report.sections.contents import document
from poslab.report.write import write_report
from support.browser import Reader, started
from support.commands import read
from support.forks import one_of_each
from support.hostile import COMMANDS, HOSTILE, RUNS, STUDY
from support.records import contents, write_run

pytestmark = pytest.mark.filterwarnings("ignore:Glyph", "ignore:constrained_layout")


@pytest.fixture(scope="module")
def browser():
    with started() as found:
        yield found


def write_records(runs: Path, finished: range, study: str = STUDY) -> None:
    """Write each text into every text field; those outside `finished` are statuses of failed runs, too."""
    for i, text in enumerate(HOSTILE):
        name = RUNS[i] if 0 < i < len(RUNS) else f"run.{i}..json"
        config: dict[str, Any] = {
            "pos": {"name": text, "base": text},
            "data": {"name": "x", "path": text, **{key: list(HOSTILE) for key in HOSTILE}},
        }
        manifest: dict[str, Any] = {
            "data": {"name": text, "fingerprint": text, "vocabulary": 256},
            "versions": {text: text},
            "wandb": {"mode": text, "url": text},
            "reason": text,
            "status": "done" if i in finished else text,
            **dict.fromkeys(
                ("code", "device", "kernel", "precision", "started", "finished", "attention"), text
            ),
        }
        write_run(runs, name, text, study=study, shift=i / 100, config=config, **manifest)
    asked = [*HOSTILE, *RUNS, "../../..", "/etc", ".", "...", ".hidden", "run.0..json"]
    plan = {"study": study, "runs": asked, "reference": HOSTILE[0], "commands": list(HOSTILE)}
    plan["question"] = "".join(HOSTILE)
    write_sealed(runs / study / "study.json", plan)


@pytest.fixture(scope="module")
def page_path(tmp_path_factory):
    """The page with all texts, without the slow paper figures."""
    home = tmp_path_factory.mktemp("page")
    write_records(home / "runs", range(len(HOSTILE)))
    path = home / "index.html"
    path.write_text(page(document(gather(STUDY, home / "runs", None))))
    return path


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A whole report with a figure of each kind. Its runs are so deep that ../.. is still checked."""
    home = tmp_path_factory.mktemp("hostile")
    deep = home / "a" / "b"
    write_records(deep / "runs", range(3))
    before = contents(home)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paper, "draw_all", one_of_each)
        report = write_report(STUDY, deep / "runs", deep / "reports")
    made, after = report.directory, contents(home)
    assert made == deep / "reports" / STUDY
    lists = {str((made.parent / name).relative_to(home)) for name in ("index.html", "local.html")}
    assert before.items() <= after.items()
    new = after.keys() - before.keys() - lists
    assert new
    assert not [path for path in new if not (home / path).resolve().is_relative_to(made.resolve())]
    return report


def test_nothing_runs_and_nothing_is_fetched(page_path, browser):
    reader = Reader(browser, page_path, width=390)
    shown = reader.page
    for figure in shown.locator(".plot").all():
        figure.press("End")
    for button in shown.locator("th button").all()[:6]:
        button.click()
    shown.locator(".legend button").first.click()
    shown.locator("#reproduce summary").click()
    assert shown.evaluate("window.poslabCanary") is None
    assert shown.locator("#data").count() == 1
    assert shown.locator("script").count() == 3
    assert shown.locator("img, iframe, object, embed, base, form, link, svg[onload], main style").count() == 0
    unsafe = shown.evaluate(
        """() => [...document.querySelectorAll("*")].flatMap((one) => [...one.attributes])
          .filter(({ name, value }) => name.startsWith("on") || (name === "href" && value.includes(":")))
          .map(({ name, value }) => `${name}=${value}`)"""
    )
    assert unsafe == []
    assert shown.evaluate("document.documentElement.scrollWidth") <= 390
    assert shown.pdf().startswith(b"%PDF")
    reader.page.close()
    assert reader.faults == []


def test_the_texts_are_shown_as_text(page_path, written):
    text = page_path.read_text()
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, flags=re.DOTALL)[1])
    labels = " ".join(arm["label"] for arm in data["arms"].values())
    for hostile in (HOSTILE[0], HOSTILE[2], HOSTILE[7], HOSTILE[15], HOSTILE[17]):
        assert hostile in labels
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]", labels)
    assert len(text) < 1_000_000
    # A sheet keeps a text, except for an apostrophe that stops a spreadsheet from reading a formula.
    assert f"'{HOSTILE[15]}" in {row["pos"] for row in read(written.directory / "summary.csv")}
    number = r"-?\d+(\.\d+)?(e[-+]\d+)?"
    for path in written.directory.glob("*.csv"):
        with path.open(newline="") as file:
            cells = [cell for row in csv.reader(file) for cell in row if not re.fullmatch(number, cell)]
        assert [cell for cell in cells if cell[:1] in {*"=+-@", "\t", "\r", "\n"}] == [], path


def test_a_terminal_gets_no_control_characters(written, tmp_path, capsys):
    show(written)
    write_records(tmp_path, range(3), "hostile")
    assert status(["study=hostile", f"runs={tmp_path}"]) in (0, 1)
    printed = "".join(capsys.readouterr())
    assert "poslabCanary" in printed
    assert not COMMANDS.search(printed)


def test_markdown_is_escaped_except_in_code_blocks(written):
    lines = [
        line
        for line in (written.directory / "report.md").read_text().splitlines()
        if not line.startswith("    ")
    ]
    assert any("poslabCanary" in line for line in lines)
    for line in lines:
        assert not re.search(r"<(?!http)", line), line
        assert not re.search(r"(?<!\\)\]\((?:javascript|data|http://127)", line), line
