"""Which numbers of a report have no cell in the CSV files beside it. It knows no code of the report."""

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

Row = Mapping[str, str]
Cells = list[tuple[Row, str]]  # a row and a column each
WORDS = (
    "arms",
    "pairs",
    "differences",
    "facts",
    "method",
    "rescaled_arms",
)  # that any sentence may take its numbers from
KEYS = ("arm", "run", "line", "task", "figure")  # columns that say whose row it is
TITLES = {"Non-overlapping loss": "loss", "Sliding loss": "sliding", "Context gain": "context_gain"}
SCALES = {"k": 1e-3, "M": 1e-6, "G": 1e-9, "T": 1e-12, "s": 1.0, "min": 1 / 60, "h": 1 / 3600, "%": 100.0}
NUMBER = re.compile(
    r"(?P<sign>[+−]?)(?P<number>(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[+-]?\d+)?)"
    r"(?P<unit> (?:[kMGT%sh]|min)(?!\w)|%)?"
)
WORD = r"(?=[A-Za-z_]*\d)(?=\d*[A-Za-z_])\w+"  # letters and digits in one
PERCENT_LATER = re.compile(r"(?:, \d+)* (?:and|or|±) [\d.]+ ?%")  # 50, 75 and 90 %, 2.1 ± 0.2 %
MULTIPLE = re.compile(r"(?:^|at |: )(?:(?P<times>\d+(?:\.\d+)?) L|L(?:/(?P<parts>\d+))?)$")
MORE = re.compile(r"(?:and|others for) (\d+) more")
CLAUSE = re.compile(
    r"[;:] |\. |, (?:lower|higher|within noise|not |without a common|below 0|later)"
)  # of the verdict
FIGURE = re.compile(r"^Figure (\d+)\. ")


@dataclass(frozen=True)
class Piece:
    """A text that a reader sees, and what its numbers may be taken from."""

    where: str
    text: str
    sheets: tuple[str, ...] = WORDS
    keys: tuple[str, ...] = ()  # names that a row has to hold, such as its arm's
    at: float | None = None  # the multiple of L that the head of its column names
    equal: tuple[tuple[str, float], ...] = ()  # cells that a row has to hold
    percent: bool = False  # whether its head or its sentence says that it is in percent
    caption: bool = False  # of a figure: it speaks of all of it, and of no point
    whole: bool = False  # whether a cell has to hold all of it


@cache
def number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def multiple(head: str) -> float | None:
    """The multiple of L that the head of a column ends with."""
    found = MULTIPLE.search(head)
    return None if found is None else float(found["times"] or 1) / int(found["parts"] or 1)


@dataclass(frozen=True)
class Shown:
    """A number as it is printed."""

    digits: str
    sign: str
    scales: tuple[float, ...]
    unit: str
    figure: bool  # whether it may be the rounded figure of an arm or run; in words, small ones are counts

    @cached_property
    def range(self) -> tuple[float, float]:
        """What is printed so, before it is scaled by 1, 100 or its unit."""
        shown = float(self.digits) * (-1 if self.sign == "−" else 1)
        whole, _, decimals = self.digits.partition("e")[0].partition(".")
        places = len(decimals)
        if self.unit not in ("", "%"):  # three digits, without zeros at their end
            places = max(places, 3 - len(whole))
        half = 0.5 * 10.0 ** (int(self.digits.partition("e")[2] or 0) - places)
        if len(self.digits) <= (1 if self.figure or self.sign else 2) and self.unit in ("", "%"):
            half = 0.0  # a count, or a constant
        half += 1e-9 * abs(shown)
        return shown - half, shown + half

    def of(self, cell: str) -> bool:
        """Whether it is the cell's number, rounded to the digits shown."""
        value = number(cell)
        if value is None:
            return False
        low, high = self.range
        return any(low <= value * scale <= high for scale in self.scales)


def read_number(text: str, found: re.Match[str], percent: bool, figure: bool = True) -> Shown:
    unit = (found["unit"] or "").strip()
    scales = [SCALES[unit]] if unit else [1.0]
    if not unit and (percent or PERCENT_LATER.match(text, found.end("number"))):
        scales.append(100.0)
    return Shown(found["number"].replace(",", ""), found["sign"], tuple(scales), unit, figure)


@dataclass(frozen=True)
class Sheets:
    """The CSV files of a report by their names."""

    rows: Mapping[str, Sequence[Row]]
    faults: list[str] = field(default_factory=list)  # what has no cell
    found: dict[Any, Any] = field(default_factory=dict)  # rows and names that were looked up before

    @classmethod
    def read(cls, directory: Path) -> "Sheets":
        found = {}
        for path in sorted(directory.glob("*.csv")):
            with path.open(newline="") as file:
                found[path.stem] = list(csv.DictReader(file))
        return cls(found)

    @cached_property
    def arms(self) -> list[str]:
        return [row["arm"] for row in self.rows["arms"]]

    @cached_property
    def arm_pattern(self) -> str:
        return "|".join(map(re.escape, sorted(self.arms, key=len, reverse=True)))

    def keys(self, names: Iterable[str]) -> set[str]:
        """Every name that says whose row one is."""
        rows = (row for name in names for row in self.rows.get(name, ()))
        return {row[key] for row in rows for key in KEYS if row.get(key)}

    def ends_of(self, sheets: tuple[str, ...]) -> list[Row]:
        """Of each file that is no table of the report, the lowest and the highest number of every column."""
        found: list[Row] = []
        for name in (name for name in sheets if name not in WORDS):
            columns = {column: [row[column] for row in self.rows[name]] for column in self.rows[name][0]}
            known = {c: [cell for cell in cells if number(cell) is not None] for c, cells in columns.items()}
            found += [{c: end(cells, key=float) for c, cells in known.items() if cells} for end in (min, max)]
        return found

    def rows_of(self, sheets: tuple[str, ...], keys: tuple[str, ...]) -> list[Row]:
        """The rows that hold every one of the names."""
        if (sheets, keys) not in self.found:
            self.found[sheets, keys] = [
                row
                for name in sheets
                for row in self.rows.get(name, ())  # not every study has each
                if {*keys} <= {row[key] for key in KEYS if key in row}
            ]
        rows: list[Row] = self.found[sheets, keys]
        return rows

    def names_of(self, sheets: tuple[str, ...], keys: tuple[str, ...]) -> tuple[list[str], set[str]]:
        """The texts with a digit in those rows, the longest first, and the words in them."""
        if ("names", sheets, keys) not in self.found:
            texts = {cell for row in self.rows_of(sheets, keys) for cell in row.values()}
            names = {text for text in texts if re.search(r"\d", text) and number(text) is None}
            words = {word for name in names for word in re.findall(r"\w+", name)}
            self.found["names", sheets, keys] = (sorted(names, key=lambda n: (-len(n), n)), words)
        found: tuple[list[str], set[str]] = self.found["names", sheets, keys]
        return found

    def cells(self, piece: Piece) -> Cells:
        """Every cell that a piece may speak of, as its row and column."""
        at = "" if piece.at is None else f"_{piece.at:g}x"
        rows = self.rows_of(piece.sheets, piece.keys)
        if piece.caption:
            rows = [*self.rows_of(WORDS, piece.keys), *self.ends_of(piece.sheets)]
        return [
            (row, column)
            for row in rows
            if all(number(row.get(column, "")) == value for column, value in piece.equal)
            for here in (piece.at is None or number(row.get("multiple", "")) == piece.at,)
            for column in row
            if here or at in column
        ]

    def check(self, piece: Piece) -> None:
        """Add to the faults every number of the piece that no cell holds."""
        text = FIGURE.sub("", piece.text)
        if not re.search(r"\d", text):
            return
        names, words = self.names_of(piece.sheets, piece.keys)
        if piece.whole:
            self.faults.extend([] if text in names else [f"{piece.where}: {text!r}"])
            return
        pattern = "|".join(re.escape(name) for name in names if name in text)
        known = rf"(?<!\w)(?P<name>{pattern})(?!\w)|" if pattern else ""
        bound = dict(self.bound(text))
        every = rf"{known}(?P<more>{MORE.pattern})|{NUMBER.pattern}(?!\w)|(?P<word>{WORD})"
        for found in re.finditer(every, text):
            if found.groupdict().get("name"):
                continue
            if found["more"]:
                right = self.counted(text, found.start())
            elif found["word"]:
                right = found["word"] in words
            else:
                arm = bound.get(found.start("number"))
                keys = piece.keys if arm is None else (*piece.keys, arm)
                right = self.has_cell(replace(piece, keys=keys), text, found)
            if not right:
                around = text[max(0, found.start() - 60) :][:120]
                self.faults.append(f"{piece.where}: {found[0]!r} in {around!r}")

    def has_cell(self, piece: Piece, text: str, found: re.Match[str]) -> bool:
        """Whether a cell, rounded as the number is, is that number; beside half its interval, where shown."""
        cells = self.cells(piece)
        shown = read_number(text, found, piece.percent, bool(piece.keys))
        before, after = text[: found.start()], text[found.end() :]
        if before.endswith("L/"):
            return any(number(row[column]) == 1 / float(shown.digits) for row, column in cells)
        if before.endswith("< ") and any(shown.of(row["value"]) for row in self.rows["method"]):
            return any(0 <= (number(row[column]) or 1) < float(shown.digits) for row, column in cells)
        if after.startswith(" L") and any(f"_{shown.digits}x" in row[column] for row, column in cells):
            return True
        half = NUMBER.match(after, 3) if after.startswith(" ± ") else None
        if half is None:
            return before.endswith("± ") or any(shown.of(row[column]) for row, column in cells)
        width = read_number(after, half, piece.percent)
        unit = shown if shown.unit or width.unit != "%" else replace(shown, scales=width.scales)
        return any(
            unit.of(row[column]) and width.of(row.get(re.sub("mean$", "half_width", column), ""))
            for row, column in cells
            if column.endswith("mean")
        )

    def bound(self, text: str) -> Iterator[tuple[int, str]]:
        """Whose a number is by its place: "rope (1.2 ± 0.1)", "1.2 (rope)", "64 tokens for rope"."""
        arms = rf"(?<![\w.])(?P<arm>{self.arm_pattern})(?!\w)"
        for found in re.finditer(rf"{arms} \((?P<inside>[^()]*)\)", text):
            for one in NUMBER.finditer(found["inside"]):
                yield found.start("inside") + one.start("number"), found["arm"]
        after = rf"(?P<one>{NUMBER.pattern})(?: \(|(?: tokens)? for ){arms}(?=\)|,|;|\.| and )"
        for found in re.finditer(after, text):
            yield found.start("number"), found["arm"]

    def counted(self, text: str, end: int) -> bool:
        """Whether "a, b and 3 more" stand for as many arms as some rows of a sheet have in common."""
        left = re.sub(r" \([^()]*\)", lambda one: " " * len(one[0]), text)
        more = MORE.match(text, end)
        assert more is not None
        clause = CLAUSE.split(left[:end])[-1]
        named = len(re.findall(rf"(?<![\w.])(?:{self.arm_pattern})(?!\w)", clause))
        return int(more[1]) + named + sum(map(int, MORE.findall(clause))) in self.sizes

    @cached_property
    def sizes(self) -> set[int]:
        """How many arms share a text, lie on one side of what they are held against, or have a value."""
        groups: Counter[tuple[str, ...]] = Counter()
        for row in self.rows["differences"]:
            read = {row["reading"], row["reading"].split(" ")[0], _side(row["mean"], row["half_width"])}
            groups.update((row["figure"], part) for part in read)
        for row in self.rows["arms"]:
            for column, cell in row.items():
                half = row.get(column.replace("_mean", "_half_width"), "")
                groups.update({(column, ""), (column, cell), (column, _side(cell, half))} if cell else ())
            low, high = (number(row[f"tokens_to_target_ratio_{end}"]) or 1.0 for end in ("low", "high"))
            groups["ratio", "sooner" if high < 1 else "later" if low > 1 else "unclear"] += 1
        return {*groups.values(), len(self.arms)}


def _side(mean: str, half: str) -> str:
    value, width = number(mean), number(half)
    if value is None or width is None:
        return "unknown"
    return "within" if abs(value) <= width else "above" if value > 0 else "below"


def table_pieces(
    sheets: Sheets, where: str, heads: Sequence[str], rows: Iterable[Sequence[str]], names: tuple[str, ...]
) -> Iterator[Piece]:
    """The heads and cells of a table whose figures are in the sheets of these names."""
    yield from (Piece(f"{where}, head", head, (*names, *WORDS)) for head in heads)
    known = sheets.keys(names)
    for row in rows:
        titles = [_column(text) for text in row]
        keys = tuple(dict.fromkeys(text for text in (*row, *titles) if text in known))
        if not keys:
            sheets.faults.append(f"{where}: a row of no arm or run, {list(row)}")
        for head, text in zip(heads, row, strict=True):
            if text not in keys and _column(text) not in keys:
                yield Piece(
                    f"{where}, {keys}, {head}", text, names, keys, multiple(head), percent="ercent" in head
                )


def _column(title: str) -> str:
    """Loss at 8 L -> loss_8x."""
    family, _, k = title.partition(" at ")
    return f"{TITLES[family]}_{multiple(k):g}x" if family in TITLES and multiple(k) is not None else ""


def figures_in_order(pieces: Iterable[Piece]) -> bool:
    found = [int(number[1]) for piece in pieces if (number := FIGURE.match(piece.text))]
    return found == list(range(1, len(found) + 1)) and len(found) > 0
