"""Pieces of HTML that the sections of the page share: tables, keys of legends, links to files."""

import math
import re
from collections.abc import Sequence
from itertools import groupby

from poslab.report.figures import FORMATS
from poslab.report.folding import LONG
from poslab.report.formatting import DASH, escape_html
from poslab.report.sorting import sort_value
from poslab.report.style import look
from poslab.report.tables import Cell, Column, Table

_HINT = (
    '<p class="at"><span class="hint">Point at the chart, or focus it and use the arrow keys. '
    "Drag, or press + and −, to zoom.</span></p>"
)
_PLAIN_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_INTERVAL = re.compile(r"(\S+(?: [kMGT])?)( (?:± |\[[\d.]).*)")  # a number, then how sure it is


def section_html(table: Table) -> str:
    """A section of the page with one table, its caption and a link to the CSV."""
    return (
        f'<section id="{table.name}"><h2>{escape_html(table.title)}</h2>'
        f'<p class="caption">{escape_html(table.caption)}</p>{table_html(table)}{source_html(table)}'
        "</section>"
    )


def table_html(table: Table) -> str:
    """A table in a box that scrolls sideways; rows of a grouped one stand under their first cell."""
    columns = table.columns[1:] if table.grouped else table.columns
    head = ""
    if any(column.group for column in columns):
        groups = [(key, len(list(found))) for key, found in groupby(columns, key=lambda column: column.group)]
        cells = "".join(
            f'<th class="group" colspan="{n}" scope="colgroup"><span>{escape_html(key)}</span></th>'
            if key
            else f'<td colspan="{n}"></td>'
            for key, n in groups
        )
        head = f"<tr>{cells}</tr>"
    titles = "".join(
        f'<th scope="col"{_classes(not column.number, "long" if len(column.title) > 14 else "")}>'
        f"{escape_html(column.title)}</th>"
        for column in columns
    )
    label = escape_html(f"Table: {table.title}")
    tall = " tall" if len(table.rows) > LONG else ""
    return (
        f'<div class="box{tall}" tabindex="0" role="region" aria-label="{label}"><table>'
        f"<thead>{head}<tr>{titles}</tr></thead>{_bodies(table)}</table></div>"
    )


def _bodies(table: Table) -> str:
    if not table.grouped:
        return f"<tbody>{_rows(table.rows, table.columns)}</tbody>"
    bodies = [
        f'<tbody><tr><th scope="rowgroup" class="text of" colspan="{len(table.columns) - 1}">'
        f"<span>{cell_html(first)}</span></th></tr>"
        f"{_rows([row[1:] for row in rows], table.columns[1:])}</tbody>"
        for first, rows in groupby(table.rows, key=lambda row: row[0])
    ]
    return "".join(bodies)


def source_html(table: Table) -> str:
    """Where the table's figures are in full."""
    return sources_html(table.sources)


def sources_html(names: Sequence[str]) -> str:
    """Links to CSV files with everything in full."""
    links = " and ".join(f'<a href="{name}">{name}</a>' for name in names)
    return f'<p class="source">In full: {links}</p>'


def _rows(rows: Sequence[Sequence[Cell]], columns: Sequence[Column]) -> str:
    return "".join(f"<tr>{_row(row, columns)}</tr>" for row in rows)


def _row(row: Sequence[Cell], columns: Sequence[Column]) -> str:
    first = f'<th scope="row" class="text">{cell_html(row[0])}</th>'
    rest = zip(row[1:], columns[1:], strict=True)
    return first + "".join(_cell(cell, column) for cell, column in rest)


def _cell(cell: Cell, column: Column) -> str:
    if column.number:
        return f"<td{value_html(cell)}>{cell_html(cell)}</td>"
    return f"<td{_classes(True, 'wide' if len(cell.text) > 32 else '')}>{cell_html(cell)}</td>"


def value_html(cell: Cell) -> str:
    """The attribute that a cell sorts by, where its text is no plain number but stands for one."""
    value = None if _PLAIN_NUMBER.fullmatch(cell.text) else sort_value(cell.text)
    if value is None:
        return ""
    return f' data-value="{"Infinity" if value == math.inf else f"{value:.15g}"}"'


def _classes(text: bool, wraps: str = "") -> str:
    found = " ".join(name for name in ("text" if text else "", wraps) if name)
    return f' class="{found}"' if found else ""


def cell_html(cell: Cell) -> str:
    """The inside of a cell."""
    text = escape_html(cell.text)
    if cell.text == DASH:
        text = f'<span class="dash">{DASH}</span>'
    elif found := _INTERVAL.fullmatch(text):
        text = f'{found[1]}<span class="half">{found[2]}</span>'
    if cell.link:
        text = f'<a href="{escape_html(cell.link)}" rel="noopener noreferrer">{text}</a>'
    return f'<span class="chip a{cell.arm}"></span>{text}' if cell.arm is not None else text


def legend_html(kind: str, title: str, entries: Sequence[tuple[int, str]]) -> str:
    """A button for each look of a figure, by number and label, with room for its value; `kind`: arm or line.

    Where the chart is pointed at, its script writes the values. They change too often to be read out.
    """
    buttons = "".join(
        f'<button type="button" class="a{number}" data-{kind}="{number}" aria-pressed="true">'
        f'{key_html(number)}<span>{escape_html(label)}</span> <output aria-live="off"></output></button>'
        for number, label in entries
    )
    return f'<div class="legend" role="group" aria-label="{escape_html(title)}">{buttons}</div>{_HINT}'


def key_html(arm: int) -> str:
    """A short line in the dashes of a look, for a legend."""
    dash = " ".join(f"{part:g}" for part in look(arm).dash)
    return (
        '<svg width="24" height="8" aria-hidden="true"><line x1="1" y1="4" x2="23" y2="4" '
        f'stroke="currentColor" stroke-width="2.2" stroke-dasharray="{dash}"/></svg>'
    )


def links_html(name: str) -> str:
    """Links to a figure's files."""
    of = f'<span class="unseen"> of {escape_html(name.replace("_", " "))}</span>'
    files = [("CSV", f"{name}.csv"), *((kind.upper(), f"figures/{name}.{kind}") for kind in FORMATS)]
    return (
        '<p class="links">' + "".join(f'<a href="{path}">{title}{of}</a>' for title, path in files) + "</p>"
    )
