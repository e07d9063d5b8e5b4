"""The files of a report: the page, its sheets and the lists of reports."""

import base64
import hashlib
import html
import re
import shutil

import pytest

from poslab.report import cells
from poslab.report.listed import LIST, list_pages
from poslab.report.write import write_report
from support.commands import ROOT, read
from support.records import contents, plan, write_run

HOSTILE = "<script>alert(1)</script>|[x](javascript:alert(1))"


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Two arms with two seeds, a hostile run and a failed one; the report is written once for all tests."""
    home = tmp_path_factory.mktemp("report")
    runs = home / "runs"
    for seed in (0, 1):
        write_run(runs, f"rope-{seed}", seed=seed, shift=0.01 * seed)
        tracked = {"mode": "online", "url": "https://wandb.ai/lab/runs/1"}
        write_run(runs, f"alibi-{seed}", pos="alibi", seed=seed, shift=0.3 + 0.02 * seed, wandb=tracked)
    write_run(runs, "bad", pos=HOSTILE, wandb={"mode": "online", "url": "javascript:alert(1)"})
    write_run(
        runs, "gone", pos="t5", status="failed", reason="<img src=x onerror=alert(1)> in /home/me/x/y.py"
    )
    plan(runs, ["rope-0", "rope-1"], "rope")
    write_report("made_up", runs, home / "reports")
    return home


@pytest.fixture(scope="module")
def page(study):
    return (study / "reports" / "made_up" / "index.html").read_text()


def test_a_line_break_never_separates_a_number_from_its_unit(study, page):
    said = (study / "reports" / "made_up" / "report.md").read_text()
    for parted, whole in (("95 % Student-t", "95\u00a0% Student-t"), ("gain at 8 L", "gain at 8\u00a0L")):
        assert parted in said
        assert parted not in page
        assert whole in page


def test_the_page_is_one_small_file_that_fetches_nothing_and_runs_only_its_scripts(study, page):
    assert len(page) < 1_000_000
    assert not re.search(r"<(?:link|img|iframe|object|base|form)\b|<[^>]* src=|@import|url\(", page)
    for target in re.findall(r'<a [^>]*href="([^"]*)"', page):
        if target.startswith("#"):
            assert f'id="{target[1:]}"' in page
        elif not target.startswith("https://wandb.ai/"):
            assert (study / "reports" / "made_up" / target).is_file()
    scripts = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
    hashes = {base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts}
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy[1].startswith("default-src &#39;none&#39;")
    assert set(re.findall(r"sha256-([\w+/=]+)", policy[1])) == hashes
    assert len(hashes) == 2


def test_the_whole_answer_is_on_the_page_and_in_the_markdown(tmp_path):
    for pos, loss in (("rope", 2.0), ("alibi", 1.0)):
        for seed in (0, 1):
            sliding = {1.0: loss, 8.0: loss + 0.01 * seed}
            write_run(tmp_path / "runs", f"{pos}-{seed}", pos, seed, sliding=sliding, shift=0.01 * seed)
    answer = write_report("made_up", tmp_path / "runs", tmp_path / "reports").document.answer
    assert len(answer.sentences) > 1
    for name in ("index.html", "report.md"):
        written = html.unescape((tmp_path / "reports" / "made_up" / name).read_text())
        assert all(sentence in written for sentence in answer.sentences), name


def test_every_run_is_in_the_table_and_the_sheet_and_no_file_has_a_path(study, page):
    folder = study / "reports" / "made_up"
    rows = read(folder / "summary.csv")
    assert [row["run"] for row in rows] == ["rope-0", "rope-1", "alibi-0", "alibi-1", "bad", "gone"]
    assert all(f">{row['run']}<" in page for row in rows)
    assert rows[0]["loss_8x"] == repr(float(rows[0]["loss_8x"]))
    assert (rows[-1]["status"], rows[-1]["loss_1x"]) == ("failed", "")
    columns = ["study", "run", "pos", "attention", "seed", "status", "parameters", "tokens"]
    columns += ["usable_length", "tokens_to_target"]
    columns += [f"{family}_{k}x" for family in ("loss", "sliding", "bits_per_byte") for k in (1, 2, 4, 8)]
    assert set(columns) <= rows[0].keys()
    for name, content in contents(folder).items():
        assert not [secret for secret in (b"/home/", str(study).encode()) if secret in content], name


def usable_row(low, high, high_at_least=False):
    ends = {"usable_length_min": low, "usable_length_max": high}
    return {**ends, "usable_length_min_at_least": False, "usable_length_max_at_least": high_at_least}


def ratio_row(kind, value):
    names = ("ratio",) if kind == "exact" else ("ratio", "ratio_low", "ratio_high")
    unknown = {"ratio": None, "ratio_low": None, "ratio_high": None}
    return {**unknown, **dict.fromkeys(names, value), "ratio_kind": kind, "ratio_n": 2}


def reached_row(hits, mean=None):
    return {"reached": hits, "reached_of": 4, "tokens_to_target_mean": mean}


@pytest.mark.parametrize(
    ("show", "key", "row", "text", "value"),
    [
        (cells.usable, "usable_length", usable_row(0, 0), "< L", 0),
        (cells.usable, "usable_length", usable_row(128, 1024, True), "128 to ≥ 1,024", 128),
        (cells.to_target, "tokens_to_target", reached_row(4, 1.26e6), "1.26 M", 1.26e6),
        (cells.to_target, "tokens_to_target", reached_row(3), "3 of 4 reached", None),
        (cells.to_target, "tokens_to_target", reached_row(0), "> budget", None),
        (cells.over_reference, "ratio", ratio_row("at_most", 0.63), "< ×0.630", 0.63),
        (cells.over_reference, "ratio", ratio_row("exact", 1.2), "×1.20", 1.2),
        (cells.probability, "p", {"p": 0.0002}, "< 0.001", 0.0002),
        (cells.position, "at", {"at_of": 3, "at_found": 2, "at_min": 9, "at_max": 9}, "9 (2 of 3)", 9),
        (cells.position, "at", {"at_of": 2, "at_found": 0, "at_min": None}, "none", None),
    ],
)
def test_a_bound_has_its_sign_and_what_was_not_reached_is_no_number(show, key, row, text, value):
    cell = show(row, key)
    assert (cell.text, cell.value) == (text, value)


def test_all_reports_of_a_folder_are_listed_the_latest_first(tmp_path):
    reports = tmp_path / "reports"
    for day, name in enumerate(("older", "newer"), 1):
        write_run(tmp_path / "runs", "rope", study=name, finished=f"2026-11-0{day}T00:00:00+00:00")
        plan(tmp_path / "runs", ["rope"], "rope", study=name, question=HOSTILE)
        write_report(name, tmp_path / "runs", reports)
    text = (reports / "local.html").read_text()
    assert re.findall(r'href="(\w+)/index.html"', text) == ["newer", "older"]
    assert text.count("1 finished run ") == 2
    assert "<script>alert(1)" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert all((reports / source).is_file() for source in re.findall(r'src="([^"]*)"', text))
    shutil.rmtree(reports / "newer")
    write_report("older", tmp_path / "runs", reports)
    assert "newer" not in (reports / "local.html").read_text()


def test_the_list_in_git_changes_only_with_archived_studies(tmp_path):
    """It has no dates and no pages of archived studies; pages of this machine are in the other list."""
    runs, reports = tmp_path / "runs", tmp_path / "reports"
    for study in ("archived", "mine"):
        write_run(runs, "rope", study=study, finished="2026-11-01T00:00:00+00:00")
    report = write_report("archived", runs, reports, keep=True)
    before = (reports / "index.html").read_text()
    assert re.findall(r'href="(\w+)/(.*?)"', before) == [("archived", "report.md")]  # git has no page
    assert "2026-11-01" not in before
    assert 'href="local.html"' in before
    assert 'href="../index.html"' in report.page.read_text()
    write_report("mine", runs, reports)
    assert (reports / "index.html").read_text() == before
    assert set(re.findall(r'href="(\w+)/index.html"', (reports / "local.html").read_text())) == {
        "archived",
        "mine",
    }
    in_git = ROOT / "reports"
    assert (in_git / LIST).read_text() == list_pages(in_git)[LIST]
