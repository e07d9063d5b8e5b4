"""Names and texts that try to be something else: nothing runs in Chromium, nothing is written elsewhere."""

import csv
import hashlib
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from poslab.analysis.results import gather
from poslab.commands.status import main as status
from poslab.record.files import write_sealed
from poslab.report.render.page import page
from poslab.report.render.terminal import show
from poslab.report.sections.contents import document
from poslab.report.write import write_report
from poslab.report.written import Report
from support.browser import Reader, started
from support.records import read, write_run

pytestmark = pytest.mark.filterwarnings("ignore:Glyph", "ignore:constrained_layout")

CANARY = "window.poslabCanary=1"
HOSTILE = (
    f"<script>{CANARY}</script>",
    f"</script><script>{CANARY}</script>",
    f'"><img src=x onerror="{CANARY}">',
    f"'onfocus='{CANARY}' autofocus tabindex=0 x='",
    f"<svg/onload={CANARY}>",
    f"<style>@import 'http://127.0.0.1:9/{CANARY}';</style>",
    f"javascript:{CANARY}",
    f"[x](javascript:{CANARY})![y](http://127.0.0.1:9/z.png)",
    "../../poslab-was-here",
    "/tmp/poslab-was-here/../x",
    "\u202egnp.exe\u2066 \u200f mixed \u05d0\u05d1 12 34",
    "nul\x00 bell\x07 escape\x1b[31m tab\t line\nbreak\r\x85",
    "long " * 1000,
    "\U0001f9ea emoji \U0001f468\u200d\U0001f469\u200d\U0001f467 e\u0301",
    f"&lt;script&gt;{CANARY}&lt;/script&gt; &amp;quot; &#60;b&#62;",
    "=cmd|' /C calc'!A0",
    "@SUM(1+1)*cmd|' /C calc'!A0, +1 -1\t\"quoted\"",
    "{{data}} {{script}} ${x} #{y} %s {0} <%= z %>",
    f"line\u2028separator\u2029 `{CANARY}` $\\frac{{ $$ \\input{{/etc/passwd}}",
    f"<!-- unclosed <![CDATA[ {CANARY} --!> <!--<script>",
    "\x1b]0;title\x07 \x1b[2J\x1b[1;31m \x9b31m \x1b]8;;http://127.0.0.1:9/\x1b\\link\x1b]8;;\x1b\\",
    "[red]markup[/red] [/] [link=file:///etc/passwd]x[/link] [bold",
    "\\write18{touch /tmp/poslab-was-here} \\immediate\\openout1=x \\csname a\\endcsname % # & _ ^ ~",
    f"<javascript:{CANARY}> <http://127.0.0.1:9/> http://127.0.0.1:9/auto",
    f"[a]: javascript:{CANARY}\n\n[a] ~~~html <b> ``` <i>",
    "| a | table | <br> | \\| ---|--- |",
    "# heading\n- list\n1. list\n> quote\n---\n***",
    f"<a href='//127.0.0.1:9/'>x</a><form action=//127.0.0.1:9><input autofocus onfocus={CANARY}>",
    f"<math><mtext><img src onerror={CANARY}></mtext></math>",
    f"<svg><animate onbegin={CANARY} attributeName=x></svg>",
    f"<details open ontoggle={CANARY}>x</details>",
    "<meta http-equiv=refresh content='0;url=http://127.0.0.1:9/'>",
    f"<iframe srcdoc='&lt;script&gt;parent.{CANARY}&lt;/script&gt;'></iframe>",
    f"data:text/html,<script>{CANARY}</script>",
    f"<base href=http://127.0.0.1:9/><link rel=stylesheet href=x onload={CANARY}>",
    f"<template><script>{CANARY}</script></template><noscript><p title='</noscript>'>",
    f"<textarea></textarea><title></title><xmp><script>{CANARY}</script></xmp>",
    f"--></style></title></textarea><script>{CANARY}</script>",
    f"\\u003cscript\\u003e{CANARY}\\u003c/script\\u003e \\x3cb\\x3e",
    "%3Cscript%3E %00 %2e%2e%2f ..\\..\\ C:\\poslab-was-here",
    "{% import os %}{{ ''.__class__.__mro__ }} {0.__class__} {self} %(x)s",
    "$(touch /tmp/poslab-was-here) `touch x` ; rm -rf . && | > x",
    "' OR 1=1 -- \"; DROP TABLE runs; /* */",
    '{"__proto__": {"polluted": 1}} constructor toString __proto__',
    "NaN",
    "-Infinity",
    "null",
    "true",
    "1e999",
    "broken \ufffe \uffff a\u0301\u0301\u0301 \u3164 \u00ad \ufeff \U000e0041",
)
STUDY = f"..{{{{data}}}}<img src=x onerror={CANARY}>'\"&=1"
RUNS = (
    "..",
    "a..b",
    "a...",
    "hidden.",
    "-rf",
    "=1+1",
    f"<img src=x onerror={CANARY}>",
    "new\nline",
    "x" * 200,
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with started() as found:
        yield found


def tree(directory: Path) -> dict[str, str]:
    """Every file below, by its path, with its content's digest."""
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in directory.rglob("*")
        if path.is_file()
    }


def write_records(runs: Path, finished: range, study: str = STUDY) -> None:
    """Each text wherever a record has text; those outside `finished` are statuses of failed runs too."""
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
def page_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of all texts, without the paper figures, which take long."""
    home = tmp_path_factory.mktemp("page")
    write_records(home / "runs", range(len(HOSTILE)))
    path = home / "index.html"
    path.write_text(page(document(gather(STUDY, home / "runs", None))))
    return path


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """A whole report. Its runs lie deep, so that ../.. is still watched."""
    home = tmp_path_factory.mktemp("hostile")
    deep = home / "a" / "b"
    write_records(deep / "runs", range(3))
    before = tree(home)
    report = write_report(STUDY, deep / "runs", deep / "reports")
    made, after = report.directory, tree(home)
    assert made == deep / "reports" / STUDY
    new = [path for path, digest in after.items() if before.get(path) != digest]
    assert before.keys() <= after.keys()
    assert new
    new.remove(str((made.parent / "index.html").relative_to(home)))  # the list of all reports
    assert not [path for path in new if not (home / path).resolve().is_relative_to(made.resolve())]
    return report


@pytest.fixture(scope="module")
def report(written: Report) -> Path:
    return written.directory


@pytest.mark.parametrize("whole", [False, True])
def test_nothing_runs_and_nothing_is_fetched(
    page_path: Path, report: Path, browser: Browser, whole: bool
) -> None:
    reader = Reader(browser, report / "index.html" if whole else page_path, width=390)
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


def test_paper_figures_are_pictures_and_no_more(report: Path, browser: Browser) -> None:
    drawings = sorted((report / "figures").glob("*.svg"))
    assert drawings
    for path in drawings[:2]:
        reader = Reader(browser, path)
        assert reader.page.evaluate("window.poslabCanary") is None
        assert reader.page.evaluate("document.querySelectorAll('script, foreignObject, image').length") == 0
        reader.page.close()
        assert reader.faults == []


def test_the_texts_are_there_as_texts(page_path: Path, report: Path) -> None:
    text = page_path.read_text()
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, flags=re.DOTALL)[1])  # type: ignore[index]
    labels = " ".join(arm["label"] for arm in data["arms"].values())
    for hostile in (HOSTILE[0], HOSTILE[2], HOSTILE[7], HOSTILE[15], HOSTILE[17]):
        assert hostile in labels
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]", labels)
    assert len(text) < 1_000_000
    # A sheet keeps a text as it is, but for an apostrophe without which a spreadsheet takes it for a formula.
    assert f"'{HOSTILE[15]}" in {row["pos"] for row in read(report / "summary.csv")}
    for path in report.glob("*.csv"):
        with path.open(newline="") as file:
            cells = [cell for row in csv.reader(file) for cell in row]
        formulas = [cell for cell in cells if cell[:1] in {*"=+-@", "\t", "\r", "\n"} and not is_number(cell)]
        assert formulas == [], path


def is_number(cell: str) -> bool:
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False


# What a terminal obeys, and what makes it show letters in another order.
COMMANDS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def test_a_terminal_gets_letters_and_no_commands(
    written: Report, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    show(written)
    write_records(tmp_path, range(3), "hostile")
    assert status(["study=hostile", f"runs={tmp_path}"]) in (0, 1)
    printed = "".join(capsys.readouterr())
    assert "poslabCanary" in printed
    assert not COMMANDS.search(printed)


def test_markdown_is_text_but_in_blocks_of_code(report: Path) -> None:
    lines = [line for line in (report / "report.md").read_text().splitlines() if not line.startswith("    ")]
    assert any("poslabCanary" in line for line in lines)
    for line in lines:
        assert not re.search(r"<(?!http)", line), line
        assert not re.search(r"(?<!\\)\]\((?:javascript|data|http://127)", line), line
