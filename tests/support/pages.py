"""A report's page with every kind of arm, written from records made up here, and visits to it."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from playwright.sync_api import Browser, Locator, Page

from poslab.analysis.results import gather
from poslab.report.render.page import page as whole_page
from poslab.report.sections.contents import document
from poslab.report.write import write_sheets
from support.browser import Reader, Scheme
from support.records import FLAT, LINES, STEEP, plan, write_rescaled, write_run

HOSTILE = "<script>window.poslabCanary=1</script>|[x](javascript:alert(1))"


def write_study(runs: Path) -> None:
    """Arms of three seeds: rescaled, never at the target, sometimes at it, not defined past L, hostile."""
    same = {"config": {"evaluate": {"longest": 8}}}
    for seed in range(3):
        write_rescaled(runs, f"rope-{seed}", LINES, shift=0.01 * seed, seed=seed)
        write_run(runs, f"alibi-{seed}", "alibi", seed, sliding=FLAT, shift=0.9 + 0.02 * seed**2, **same)
        write_run(runs, f"late-{seed}", "late", seed, sliding=STEEP, shift=-0.1 + 0.5 * seed, **same)
        short = {"max_length": 8, "sliding": {1.0: 1.7}, "shift": 0.05 + 0.03 * seed, **same}
        write_run(runs, f"learned-{seed}", "learned", seed, **short)
        write_run(runs, f"hostile-{seed}", HOSTILE, seed, shift=-0.02 * seed, **same)
    write_run(runs, "gone", "t5", status="failed", reason="out of memory", **same)
    names = [f"{arm}-{seed}" for arm in ("rope", "alibi", "late", "learned", "hostile") for seed in range(3)]
    plan(runs, names, "rope")


def write_page(home: Path) -> Path:
    """The page of that study, and its CSV files."""
    write_study(home / "runs")
    # As write_report does, without the seconds that the paper figures take.
    made = document(gather("made_up", home / "runs", None))
    (home / "index.html").write_text(whole_page(made))
    write_sheets(home, made.sheets)
    return home


def visits(browser: Browser, index: Path) -> Iterator[Callable[..., Page]]:
    """Opens the page at `index`; at the end no page may have fetched, complained or asked anything."""
    readers: list[Reader] = []

    def opened(path: Path = index, scheme: Scheme = "light", width: int = 1280) -> Page:
        readers.append(Reader(browser, path, scheme, width))
        return readers[-1].page

    yield opened
    for reader in readers:
        reader.page.close()
        assert reader.faults == []


def head(page: Page, table: str, title: str) -> Locator:
    return page.locator(f"{table} th button", has_text=re.compile(f"^{re.escape(title)}$"))
