"""The tables of the page as its readers sort them, in Chromium."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from support.browser import started
from support.pages import head, visits, write_page
from support.records import read


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with started() as found:
        yield found


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_page(tmp_path_factory.mktemp("page"))


@pytest.fixture
def visit(browser: Browser, report: Path) -> Iterator[Callable[..., Page]]:
    yield from visits(browser, report / "index.html")


def order(page: Page, table: str) -> list[str]:
    return [text.strip() for text in page.locator(f"{table} tbody th[scope=row]").all_text_contents()]


@pytest.mark.parametrize(
    ("title", "column"), [("4 L", "sliding_4x_mean"), ("Own loss", "usable_length_min"), ("Mean", "target")]
)
def test_tables_sort_by_what_the_sheet_says(
    visit: Callable[..., Page], report: Path, title: str, column: str
) -> None:
    page, rows = visit(), read(report / "arms.csv")
    reported = order(page, "#arms")
    assert reported == [row["arm"] for row in rows]

    def key(row: dict[str, str]) -> float | None:
        if column != "target":
            past = 0.5 if row.get("usable_length_min_at_least") == "true" and column.startswith("us") else 0
            return float(row[column]) + past if row[column] else None
        if row["tokens_to_target_mean"]:
            return float(row["tokens_to_target_mean"])
        hits = int(row["reached"] or 0)
        return None if not row["reached"] else math.inf if not hits else 1e300 / hits

    found = {row["arm"]: key(row) for row in rows}
    known = [arm for arm in reported if found[arm] is not None]
    last = [arm for arm in reported if found[arm] is None]
    ascending = sorted(known, key=lambda arm: found[arm] or 0.0)
    descending = sorted(known, key=lambda arm: -(found[arm] or 0.0))
    assert last
    assert ascending not in (reported, descending)
    button = head(page, "#arms", title)
    cell = button.locator("..")
    for state, expected in (
        ("ascending", ascending + last),
        ("descending", descending + last),
        ("none", reported),
    ):
        button.focus()
        page.keyboard.press("Enter")
        assert cell.get_attribute("aria-sort") == state
        assert order(page, "#arms") == expected
    head(page, "#arms", "Arm").click()
    button.click()
    assert page.locator("#arms [aria-sort=ascending], #arms [aria-sort=descending]").count() == 1


def test_a_grouped_table_sorts_inside_its_groups(visit: Callable[..., Page]) -> None:
    page = visit()
    groups = page.locator("#rescaled tbody").all_inner_texts()
    before = order(page, "#rescaled")
    head(page, "#rescaled", "8 L").click()
    after = order(page, "#rescaled")
    assert after == ["YaRN s=8", "interpolation s=8", "as trained"]
    assert after != before
    assert [text.splitlines()[0] for text in page.locator("#rescaled tbody").all_inner_texts()] == [
        text.splitlines()[0] for text in groups
    ]
