"""What a reader sees of a report, in pieces with the CSV files that each is said to come from."""

import html.parser
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from support.tracing import WORDS, Piece, Row, Sheets, multiple, number, table_pieces

SHEET = re.compile(r"\]\(([\w.-]+)\.csv\)")
BLOCKS = {
    "p",
    "li",
    "dt",
    "dd",
    "h1",
    "h2",
    "h3",
    "b",
    "figcaption",
    "button",
    "summary",
    "title",
    "pre",
    "a",
}
VOID = {"meta", "br", "img"}


def markdown_pieces(sheets: Sheets, text: str) -> Iterator[Piece]:
    """Tables go by the files that "In full" names, captions by their figure's, words by the section's."""
    for section in re.split(r"\n(?=## )", text):
        heading, *blocks = section.split("\n\n")
        linked = tuple(dict.fromkeys((*WORDS, *SHEET.findall(section))))
        yield Piece("report.md", _unmarked(heading))
        for i, block in enumerate(blocks):
            if block.startswith("|"):
                lines = [re.split(r"(?<!\\) ?\| ?", line)[1:-1] for line in block.split("\n")]
                cells = [[_unmarked(cell) for cell in line] for line in lines]
                names = tuple(SHEET.findall(blocks[i + 1]))
                where = f"report.md {heading}"
                yield from table_pieces(sheets, where, cells[0], cells[2:], names)
            elif block.startswith("    "):
                yield from (
                    Piece("report.md, command", line.strip(), whole=True) for line in block.split("\n")
                )
            elif not block.startswith("![") and not block.startswith("In full: "):
                caption = "[CSV](" in block
                names = (*WORDS, *SHEET.findall(block)) if caption else linked
                for line in block.split("\n"):
                    yield _sentence("report.md", _unmarked(line), names, caption)


def _sentence(where: str, text: str, sheets: tuple[str, ...], caption: bool = False) -> Piece:
    return Piece(where, text, sheets, percent="ercent" in text, caption=caption)


def _unmarked(text: str) -> str:
    text = re.sub(
        r"(?<!\\)\[((?:[^\]\\]|\\.)*)\]\([^)]*\)",
        lambda m: "" if m[1] in ("CSV", "SVG", "PDF") else m[1],
        text,
    )
    text = re.sub(r"^[#>-]+ |\*\*(?=[A-Z])|(?<=\.)\*\*", "", text)
    return html.unescape(re.sub(r"\\(.)", r"\1", text)).strip()


@dataclass
class Node:
    """An element of the page, or text where it has no tag."""

    tag: str
    said: dict[str, str | None] = field(default_factory=dict)
    children: list["Node"] = field(default_factory=list)
    content: str = ""

    @property
    def text(self) -> str:
        return self.content + "".join(child.text for child in self.children)

    def all(self, *tags: str) -> Iterator["Node"]:
        for child in self.children:
            if child.tag in tags:
                yield child
            yield from child.all(*tags)


class Tree(html.parser.HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.open = [Node("")]
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        node = Node(tag, dict(attrs))
        self.open[-1].children.append(node)
        if tag not in VOID:
            self.open.append(node)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open[-1].children.append(Node(tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(Node("", content=data))


def page_pieces(sheets: Sheets, page: str) -> Iterator[Piece]:
    """Every text of the page but scripts and styles, and what it tells a screen reader."""
    (root,) = (node for node in Tree(page).open[0].children if node.tag == "html")
    yield from _walk(sheets, root, WORDS)


def _walk(sheets: Sheets, node: Node, names: tuple[str, ...]) -> Iterator[Piece]:
    if node.tag in ("script", "style") or node.said.get("class") == "source":
        return
    if node.tag in ("section", "figure"):
        names = tuple(dict.fromkeys((*WORDS, *_linked(node))))
    label = node.said.get("aria-label") or ""
    yield _sentence(f"page, {node.said.get('id') or 'label'}", label, names)
    if node.tag == "table":
        return
    if node.tag in BLOCKS:
        own = "".join(child.text for child in node.children if child.tag not in BLOCKS)
        if node.tag == "pre" and not own.startswith("{"):  # commands; the other one is the configuration
            yield from (Piece("page, command", line, whole=True) for line in own.split("\n"))
        elif node.tag != "pre":
            yield _sentence(f"page, {node.tag}", own, names, node.tag == "figcaption")
        inner = [child for child in node.children if child.tag in BLOCKS]
    else:
        yield _sentence(f"page, {node.tag}", "".join(child.content for child in node.children), names)
        inner = [child for child in node.children if child.tag]
    for i, child in enumerate(inner):
        yield from _walk(sheets, child, names)
        for table in child.all("table") if child.said.get("class") == "box" else ():
            if node.tag == "figure" or "heat" in (table.said.get("class") or ""):
                yield from _figure_table(sheets, table, names)
            else:
                yield from _table(sheets, table, tuple(_linked(inner[i + 1])))


def _linked(node: Node) -> list[str]:
    links = (str(link.said["href"]) for link in node.all("a"))
    return [link.removesuffix(".csv") for link in links if link.endswith(".csv")]


def _table(sheets: Sheets, table: Node, names: tuple[str, ...]) -> Iterator[Piece]:
    """A table with its files below it; a row with one cell names the rows under it."""
    top = list(next(table.all("thead")).all("tr"))
    groups = [cell.text for cell in top[0].children for _ in range(int(cell.said.get("colspan") or 1))]
    titles = [cell.text for cell in top[-1].children]
    heads = [f"{g}: {t}" if g and len(top) > 1 else t for g, t in zip(groups, titles, strict=True)]
    rows: list[list[str]] = []
    group: list[str] = []
    for body in table.all("tbody"):
        for row in body.all("tr"):
            texts = [cell.text for cell in row.children]
            if len(texts) == 1 < len(heads):
                group = texts
            else:
                rows.append([*group, *texts])
    heads = [*(["Group"] if group else []), *heads]
    yield from table_pieces(sheets, f"page, {names[0]}", heads, rows, names)


def _figure_table(sheets: Sheets, table: Node, names: tuple[str, ...]) -> Iterator[Piece]:
    """A shaded table of one arm, whose heads say which cell it is, or the table of times to targets."""
    caption = "".join(node.text for node in table.all("caption"))
    heads = [cell.text for row in next(table.all("thead")).all("tr") for cell in row.children]
    yield from (Piece("page, head", head, names, (caption,) if caption else ()) for head in heads)
    rows = [[cell.text for cell in row.children] for row in next(table.all("tbody")).all("tr")]
    if not caption:
        heads = ["" for _ in rows[0]]  # its heads are targets, and no cell names one
        yield from table_pieces(sheets, "page, tokens_to_target", heads, rows, names)
        return
    (row_label, *columns), column_label = heads[2:], heads[1]
    own = tuple(name for name in names if name not in WORDS)
    for title, *texts in rows:
        for column, text in zip(columns, texts, strict=True):
            equal = [(row_label.lower(), float(title))]
            at = multiple(column)
            if at is None:
                equal.append((column_label.lower(), float(column)))
            percent = own[0].startswith("retrieval")
            yield Piece(f"page, {own[0]}, {caption}", text, own, (caption,), at, tuple(equal), percent)


def chart_faults(sheets: Sheets, data: Mapping[str, Any]) -> Iterator[str]:
    """The points of the page's charts that no row of their arm in the chart's CSV holds."""
    for chart in data["charts"]:
        of_arms = chart["of"] == "arms"
        for series in chart["series"]:
            label = data[chart["of"]][str(series["arm"])]["label"]
            rows = [
                r for r in sheets.rows[chart["name"]] if _drawn(r, label, "" if of_arms else chart["title"])
            ]
            where = f"{chart['name']}, {label}"
            for end in ("lowest", "highest"):
                if not any(_same(series[end], row[end]) for row in rows):
                    yield f"{where}: {end} {series[end]}"
            counts = series["n"] if isinstance(series["n"], list) else [series["n"]] * len(chart["x"])
            for x, mean, half, n in zip(chart["x"], series["mean"], series["half"], counts, strict=True):
                if mean is not None and not any(
                    _same(mean, row["mean"]) and _same(half, row["half_width"]) and float(row["n"]) == n
                    and any(_same(x, cell) for cell in row.values())
                    for row in rows
                ):  # fmt: skip
                    yield f"{where}: {mean} ± {half} (n = {n}) at {x}"


def _drawn(row: Row, label: str, panel: str) -> bool:
    if not panel:
        return row["arm"] == label
    line = row["line"] if "line" in row else f"head {row['head']}"
    return line == label and panel in (row["arm"], f"{row['arm']}, layer {row.get('layer')}")


def _same(shown: float | None, cell: str) -> bool:
    """Whether a cell is the number, to 6, 9, 12 or all of its digits; None is an empty cell."""
    value = number(cell)
    if shown is None or value is None:
        return shown is None and cell == ""
    return any(float(f"{value:.{digits}g}") == shown for digits in (6, 9, 12, 17))


def flattened(value: Any, key: str = "configuration") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from flattened(item, f"{key}.{name}")
    elif isinstance(value, list):
        for item in value:
            yield from flattened(item, key)
    elif value is not None:
        yield key, value


def configuration_faults(sheets: Sheets, text: str) -> list[str]:
    """The settings of the configuration that are not as facts.csv has them."""
    shown = [
        (key, json.dumps(v) if isinstance(v, bool) else str(v)) for key, v in flattened(json.loads(text))
    ]
    cells = [(r["key"], r["value"]) for r in sheets.rows["facts"] if r["key"].startswith("configuration.")]
    return [f"configuration: {one}" for one in {*shown} ^ {*cells}]


def chart_data(page: str) -> str:
    found = re.search(r'id="data">(.*?)</script>', page, flags=re.DOTALL)
    assert found is not None
    return found[1]


def shown_configuration(page: str) -> str:
    return next(node.text for node in Tree(page).open[0].all("pre") if node.text.startswith("{"))
