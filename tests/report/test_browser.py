"""The page in Chromium: by mouse and keyboard, small, dark, and printed."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator, Page, expect

from poslab.analysis.palette import arm_numbers, look
from poslab.analysis.results import gather
from poslab.report.formatting import DASH, interval, multiple, quantity
from poslab.report.render.page import page as whole_page
from poslab.report.sections.contents import document
from poslab.report.write import write_sheets
from support.browser import Reader, Scheme, started, written
from support.commands import read
from support.pages import write_study

CHARTS = ["bits_per_byte_by_length", "sliding_loss_by_length", "loss_by_position", "validation_loss"]
ALIBI = arm_numbers([("rope", "softmax"), ("alibi", "softmax")])[1]
SCHEMES: tuple[Scheme, ...] = ("light", "dark")


@pytest.fixture(scope="module")
def browser():
    with started() as found:
        yield found


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """The page and the CSV files of a study; no paper figures, which take seconds."""
    home = tmp_path_factory.mktemp("page")
    write_study(home / "runs")
    made = document(gather("made_up", home / "runs", None))
    (home / "index.html").write_text(whole_page(made))
    write_sheets(home, made.sheets)
    return home


@pytest.fixture
def visit(browser, report):
    """Open the page; at the end no page may have fetched, logged an error or opened a dialog."""
    readers: list[Reader] = []

    def opened(path: Path = report / "index.html", scheme: Scheme = "light", width: int = 1280) -> Page:
        readers.append(Reader(browser, path, scheme, width))
        return readers[-1].page

    yield opened
    for reader in readers:
        reader.page.close()
        assert reader.faults == []


def colour(page: Page, figure: str, value: str) -> int:
    """Count the pixels of a colour in a figure's charts."""
    return int(
        page.evaluate(
            """([f, value]) => [...document.querySelectorAll(`#${f} canvas`)].reduce((n, canvas) => {
              const { width, height } = canvas, wanted = parseInt(value.slice(1), 16);
              const copy = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
              copy.drawImage(canvas, 0, 0);
              const { data } = copy.getImageData(0, 0, width, height);
              const near = (i, shift) => Math.abs(data[i] - (wanted >> shift & 255)) <= 3;
              for (let i = 0; i < data.length; i += 4)
                if (data[i + 3] > 127 && near(i, 16) && near(i + 1, 8) && near(i + 2, 0)) n++;
              return n;
            }, 0)""",
            [figure, value],
        )
    )


def drawn(page: Page, figure: str) -> str:
    return str(page.evaluate("(f) => document.querySelector(`#${f} canvas`).toDataURL()", figure))


def reading(page: Page, figure: str) -> tuple[str, list[str]]:
    """Return the x at the pointer, and the text next to each arm's name."""
    at, values = page.evaluate(
        """(f) => [document.querySelector(`#${f} .at span`).textContent,
                   [...document.querySelectorAll(`#${f} .legend output`)].map((one) => one.textContent)]""",
        figure,
    )
    return at.removeprefix("At ").removesuffix("."), values


def in_the_sheet(report: Path, figure: str) -> dict[str, list[str]]:
    """Return the text of every arm by the page's label of each x, from the cells of the CSV."""
    rows = read(report / f"{figure}.csv")
    arms = list(dict.fromkeys(row["arm"] for row in rows))
    found: dict[str, list[str]] = {}
    uneven = len({row["n"] for row in rows}) > 1  # otherwise the number of seeds is the same at every point
    for row in rows:
        if "multiple" in row:
            x = multiple(float(row["multiple"]))
        else:
            x = quantity(float(row.get("tokens") or row["tokens_seen"]))
        cells = found.setdefault(x, [DASH] * len(arms))
        half = float(row["half_width"]) if row["half_width"] else None
        n = f" (n = {row['n']})" if uneven else ""
        cells[arms.index(row["arm"])] = f"{interval(float(row['mean']), half)}{n}"
    return found


def test_arrow_keys_read_every_value_of_the_sheet_aloud(visit, report):
    page = visit()
    for figure in CHARTS[:3:2]:
        expected = in_the_sheet(report, figure)
        page.locator(f"#{figure} .plot").focus()
        page.keyboard.press("Home")
        shown = [reading(page, figure)]
        for _ in expected:
            page.keyboard.press("ArrowRight")
            shown.append(reading(page, figure))
        assert dict(shown) == expected
        last = list(expected)[-1]
        expect(page.locator("#said")).to_contain_text(f"At {last}. rope {expected[last][0]};")


def test_pointing_shows_values_without_moving_or_announcing(visit, report):
    page = visit()
    page.clock.install()
    plot = page.locator("#validation_loss .plot")
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    expected, seen = in_the_sheet(report, "validation_loss"), set()
    for part in (0.3, 0.5, 0.8):
        page.mouse.move(box["x"] + part * box["width"], box["y"] + 90)
        at, values = reading(page, "validation_loss")
        assert values == expected[at]
        assert plot.bounding_box() == box
        seen.add(at)
    page.clock.run_for(2000)
    assert len(seen) == 3
    assert page.locator("#said").inner_text() == ""


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_hidden_arm_is_gone_everywhere(visit, scheme):
    page = visit(scheme=scheme)
    mine = look(ALIBI).light if scheme == "light" else look(ALIBI).dark
    row = page.locator(f'#tokens_to_target tr[data-arm="{ALIBI}"]')
    keys = page.locator(f'.legend button[data-arm="{ALIBI}"]')
    before = {name: (colour(page, name, mine), drawn(page, name)) for name in CHARTS}
    assert all(count > 0 for count, _ in before.values())
    keys.first.focus()
    page.keyboard.press("Space")
    assert {button.get_attribute("aria-pressed") for button in keys.all()} == {"false"}
    assert keys.count() == page.locator(".legend").count() - page.locator(".panels").count()
    assert not row.is_visible()
    assert {colour(page, name, mine) for name in CHARTS} == {0}
    page.locator("#loss_by_position .plot").focus()
    page.keyboard.press("Home")
    assert reading(page, "loss_by_position")[1][1] == ""
    keys.nth(2).click()
    page.keyboard.press("Escape")
    assert row.is_visible()
    assert {name: (colour(page, name, mine), drawn(page, name)) for name in CHARTS} == before


def scale(page: Page, figure: str, axis: str, name: str) -> Locator:
    group = page.locator(f"#{figure}").get_by_role("group", name=f"Scale of the {axis} axis")
    return group.get_by_role("button", name=name, exact=True)


def test_scales_change_the_axes_and_change_back(visit, report):
    page = visit()
    plot = page.locator("#validation_loss .plot")
    start = drawn(page, "validation_loss")
    scale(page, "validation_loss", "y", "log").press("Enter")
    assert scale(page, "validation_loss", "y", "log").get_attribute("aria-pressed") == "true"
    assert scale(page, "validation_loss", "y", "linear").get_attribute("aria-pressed") == "false"
    assert drawn(page, "validation_loss") != start
    scale(page, "validation_loss", "y", "linear").press("Enter")
    assert drawn(page, "validation_loss") == start

    def middle() -> float:
        plot.hover(position={"x": 260, "y": 100})
        return float(reading(page, "validation_loss")[0].replace(" k", "e3"))

    logarithmic = middle()
    scale(page, "validation_loss", "x", "linear").click()
    assert middle() > 3 * logarithmic  # half the budget, at the former place of its root
    scale(page, "validation_loss", "x", "log").click()
    assert middle() == logarithmic
    # Lengths are on a logarithmic axis, which has no alternative.
    assert scale(page, "bits_per_byte_by_length", "x", "linear").count() == 0
    assert scale(page, "bits_per_byte_by_length", "y", "log").count() == 1


def edges(page: Page, figure: str) -> tuple[str, str]:
    """Return the first and last x that the keys reach, inside the frame."""
    page.locator(f"#{figure} .plot").first.focus()
    page.keyboard.press("Home")
    first = reading(page, figure)[0]
    page.keyboard.press("End")
    return first, reading(page, figure)[0]


def test_a_drag_zooms_and_resets(visit):
    page, figure = visit(), "validation_loss"
    plot = page.locator(f"#{figure} .plot")
    button = page.locator(f"#{figure} .tools").get_by_text("reset")
    whole, start = edges(page, figure), drawn(page, figure)
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    for reset in (
        lambda: plot.dblclick(position={"x": 260, "y": 100}),
        lambda: plot.press("Escape"),
        button.click,
    ):
        assert not button.is_visible()
        page.mouse.move(box["x"] + 200, box["y"] + 100)
        page.mouse.down()
        page.mouse.move(box["x"] + 330, box["y"] + 120, steps=3)
        page.mouse.up()
        first, last = (float(text.replace(" k", "e3")) for text in edges(page, figure))
        assert float(whole[0]) < first < last < float(whole[1].replace(" k", "e3"))
        assert drawn(page, figure) != start
        reset()
        assert (edges(page, figure), drawn(page, figure)) == (whole, start)


def test_keys_zoom_about_the_cursor_and_panels_zoom_together(visit):
    page, figure = visit(), "loss_by_position"
    whole = edges(page, figure)
    page.keyboard.press("+")
    first, last = edges(page, figure)
    assert last == whole[1]  # where the cursor was
    assert first != whole[0]
    expect(page.locator("#said")).to_contain_text(f"At {last}.")
    for _ in range(20):
        page.keyboard.press("+")
    assert len(set(edges(page, figure))) == 2  # at least two measured points stay visible
    for _ in range(20):
        page.keyboard.press("-")
    assert edges(page, figure) == whole
    panels = "rescaled_loss_by_position"
    before = drawn(page, panels)
    page.locator(f"#{panels}").get_by_role("button", name="Zoom in").click()
    assert drawn(page, panels) != before
    page.locator(f"#{panels} .tools").get_by_text("reset").click()
    assert drawn(page, panels) == before


def altered(report: Path, folder: Path, change: Callable[..., None]) -> Path:
    text = (report / "index.html").read_text()
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, flags=re.DOTALL)[1])
    change({one["name"]: one for one in data["charts"]}, data["arms"])
    page = folder / "index.html"
    dumped = json.dumps(data).replace("<", "\\u003c").replace("\\", "\\\\")
    page.write_text(re.sub(r'(id="data">).*?(</script>)', rf"\g<1>{dumped}\g<2>", text, flags=re.DOTALL))
    return page


def test_steps_and_values_below_zero(visit, report, tmp_path):
    def change(charts, _):
        stepped, below = (charts[name] for name in CHARTS[:2])
        stepped["stepped"] = True
        below["series"][0] |= {"lowest": -1, "mean": [-1.0] * len(below["x"])}

    plain, page = visit(), visit(altered(report, tmp_path, change))
    assert drawn(page, CHARTS[0]) != drawn(plain, CHARTS[0])
    assert drawn(page, CHARTS[2]) == drawn(plain, CHARTS[2])
    assert scale(page, CHARTS[1], "y", "log").count() == 0


@pytest.mark.parametrize("width", [390, 1280])
def test_text_of_a_chart_is_not_cut_and_does_not_overlap(visit, report, tmp_path, width):
    def change(charts, arms):
        chart, places = charts["validation_loss"], len(charts["validation_loss"]["x"])
        chart |= {"y_label": "Loss less that of an arm called so and so, in nats per token"}
        chart |= {"x_label": "How far back the first of two copies begins, in tokens"}
        chart |= {"mark": chart["x"][-1], "mark_label": "trained up to here"}
        for i, series in enumerate(chart["series"]):  # lines that end near each other at one height
            arms[str(series["arm"])]["label"] = f"arm number {i} of all"
            series["mean"] = [1.5 if place < places - 20 * i else None for place in range(places)]

    text, bad = written(visit(altered(report, tmp_path, change), width=width), "validation_loss")
    assert "trained up to here" in text
    assert ("arm number 1 of all" in text) == (width == 1280)
    assert bad == []


def test_charts_are_printed_in_light_colours(visit):
    page = visit(scheme="dark")
    screen = drawn(page, "validation_loss")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert colour(page, "validation_loss", look(ALIBI).light) > 0
    assert colour(page, "validation_loss", look(ALIBI).dark) == 0
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert drawn(page, "validation_loss") == screen


@pytest.mark.parametrize(("scheme", "width"), [("light", 390), ("dark", 1280)])
def test_nothing_overflows_and_axe_finds_nothing(visit, scheme, width):
    page = visit(scheme=scheme, width=width)
    page.locator(".legend button").first.click()
    head(page, "#arms", "Seeds").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    # A colour scheme changes only colours; the rest is checked once, since it takes seconds.
    rules = {} if scheme == "light" else {"runOnly": ["color-contrast"]}
    found = Axe().run(page, options={"resultTypes": ["violations"], **rules}).response["violations"]
    assert [(rule["id"], [node["html"] for node in rule["nodes"]]) for rule in found] == []


def test_the_tab_key_reaches_everything_and_shows_where_it_is(visit):
    page = visit(width=390)
    wanted = page.evaluate(
        """() => [...document.querySelectorAll("a, button, summary, .plot, .box")]
          .filter((one) => one.checkVisibility({ visibilityProperty: true }) && !one.disabled)
          .map((one, i) => { one.dataset.stop = i; return i; })"""
    )
    page.evaluate(
        """() => {
          window.reached = [];
          document.addEventListener("focusin", ({ target }) => window.reached.push(
            [Number(target.dataset.stop), getComputedStyle(target).outlineStyle !== "none"]));
        }"""
    )
    for _ in wanted:
        page.keyboard.press("Tab")
    stops = page.evaluate("window.reached")
    assert [stop for stop, outlined in stops if not outlined] == []
    reached = [stop for stop, _ in stops]
    assert sorted(reached) == sorted(wanted)
    small = page.evaluate(
        """() => [...document.querySelectorAll("button")].filter((one) => {
          const { width, height } = one.getBoundingClientRect(); return width < 24 || height < 24;
        }).map((one) => one.textContent)"""
    )
    assert small == []


def head(page: Page, table: str, title: str) -> Locator:
    words = title.replace(" ", r"\s")  # 8 L has a non-breaking space
    return page.locator(f"{table} th button", has_text=re.compile(f"^{words}$"))


def order(page: Page, table: str) -> list[str]:
    return [text.strip() for text in page.locator(f"{table} tbody th[scope=row]").all_text_contents()]


def test_tables_sort_by_the_numbers_of_the_sheet(visit, report):
    page, rows = visit(), read(report / "arms.csv")
    reported = order(page, "#arms")
    assert reported == [row["arm"] for row in rows]
    found = {row["arm"]: float(row["sliding_4x_mean"]) for row in rows if row["sliding_4x_mean"]}
    last = [arm for arm in reported if arm not in found]  # not defined at 4 L
    ascending = sorted(found, key=found.__getitem__)
    assert last
    assert reported not in (ascending + last, ascending[::-1] + last)
    button = head(page, "#arms", "4 L")
    expected = {"ascending": ascending + last, "descending": ascending[::-1] + last, "none": reported}
    for state, arms in expected.items():
        button.press("Enter")
        assert button.locator("..").get_attribute("aria-sort") == state
        assert order(page, "#arms") == arms
    head(page, "#arms", "Arm").click()
    button.click()
    assert page.locator("#arms [aria-sort=ascending], #arms [aria-sort=descending]").count() == 1


def test_a_grouped_table_sorts_inside_its_groups(visit):
    page = visit()
    groups, before = page.locator("#rescaled tbody"), order(page, "#rescaled")
    heads = [text.splitlines()[0] for text in groups.all_inner_texts()]
    head(page, "#rescaled", "8 L").click()
    assert order(page, "#rescaled") == ["YaRN s=8", "interpolation s=8", "as trained"] != before
    assert [text.splitlines()[0] for text in groups.all_inner_texts()] == heads
