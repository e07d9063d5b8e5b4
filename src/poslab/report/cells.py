"""Table cells made from rows of the CSV files, and the phrases that captions share.

Each function that makes a cell takes a row and a column name, or the prefix that several columns share:
`loss_8x` stands for `loss_8x_mean`, `loss_8x_half_width` and `loss_8x_n`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from poslab.analysis.curves import Point
from poslab.analysis.estimates import FIXED, RELATIVE, ArmFigures
from poslab.analysis.results import Results
from poslab.analysis.sheets import Row
from poslab.config.text import listing
from poslab.record import measures
from poslab.record.measures import Value, family, name
from poslab.report.charts import Series
from poslab.report.formatting import DASH, count, interval, multiple, number, quantity, share
from poslab.report.tables import Cell, Column

Show = Callable[[Row, str], Cell]

SMALLEST_P = 0.001
LOSSES = {"sliding": "Sliding loss", "loss": "Non-overlapping loss"}  # by the family of their columns
GAINS = {"context_gain": "Context gain", "early_token_curse": "Early-token curse"}
WINDOWS = {"sliding": "sliding windows", "loss": "non-overlapping windows"}
PLACES = {"sliding": "at the end of the window", "loss": "over whole windows"}  # where a loss at L is taken
BITS = {
    "bits_per_byte": "Bits per byte in non-overlapping windows",
    "sliding_bits_per_byte": "Bits per byte in sliding windows",
}
WINDOWS |= {bits: WINDOWS[family] for family, bits in measures.IN_BITS.items()}
PLACES |= {bits: PLACES[family] for family, bits in measures.IN_BITS.items()}


def figure(row: Row, key: str) -> float | None:
    """Return the number in a cell of the CSV file, or None if the cell has no number."""
    value = row.get(key)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def text(row: Row, key: str) -> Cell:
    """Return the text in a cell of the CSV file, or a dash if the cell is empty."""
    value: Value = row.get(key)
    return Cell(DASH if value is None or value == "" else str(value), figure(row, key))


def words(key: str, title: str) -> Column:
    """Return a column that shows the text of the CSV file."""
    return Column(key, title, text, number=False)


def named(places: Mapping[str, int], key: str = "arm", title: str = "Arm") -> Column:
    """Return the column of arms, each with the colour of its number in `places`."""

    def show(row: Row, key: str) -> Cell:
        name = str(row[key])
        return Cell(name, arm=places.get(name))

    return Column(key, title, show, number=False)


def arm_column(results: Results) -> Column:
    return named(looks(results))


def looks(results: Results) -> dict[str, int]:
    """Return the number of each arm's look, by label."""
    return {item.arm.label: item.arm.look for item in results.arms}


def lines(results: Results, line: Callable[[ArmFigures], tuple[Point, ...]]) -> tuple[Series, ...]:
    """Return the line of each arm that has points."""
    drawn = (Series(item.arm.look, item.arm.label, line(item)) for item in results.arms)
    return tuple(series for series in drawn if series.points)


def lone_arm(label: str) -> str:
    """Return an arm's label for a sentence that names only this arm: "the arm none" in place of "none"."""
    return "the arm none" if label == "none" else label


def rounded(show: Callable[[float | None], str]) -> Show:
    """Return a function that makes cells of one number, formatted by `show`."""

    def cell(row: Row, key: str) -> Cell:
        value = figure(row, key)
        return Cell(show(value), value)

    return cell


def significant(digits: int) -> Show:
    """Return a function that makes cells of one number with `digits` significant digits."""
    return rounded(partial(number, digits=digits))


def mean(show: Callable[[float, float | None], str] = interval) -> Show:
    """Return a function that makes cells of means with intervals, and with n if some seeds lack a value."""

    def cell(row: Row, key: str) -> Cell:
        value, half_width = _estimate(row, key)
        return Cell(DASH) if value is None else Cell(show(value, half_width) + fewer(row, key), value)

    return cell


loss = mean()
nats = mean(partial(interval, digits=3, sign=True))  # differences, so with a sign
percent = mean(share)
price = mean(partial(share, digits=2, sign="+"))  # a relative change


def difference(row: Row, key: str = "") -> Cell:
    """Return a paired difference in nats, from the columns mean and half_width."""
    return nats({f"_{end}": row[end] for end in ("mean", "half_width")}, "")


def loss_column(family: str, k: float) -> Column:
    """Return the column of mean losses in one protocol at length `k` L."""
    group = BITS[family] if family in BITS else f"{LOSSES[family]}, nats per token"
    return Column(f"{family}_{name(k)}", multiple(k), loss, group)


def _estimate(row: Row, key: str) -> tuple[float | None, float | None]:
    """Return the mean over the seeds and the half-width of its interval."""
    return figure(row, f"{key}_mean"), figure(row, f"{key}_half_width")


def fewer(row: Row, key: str) -> str:
    """Return " (n = 3)" if only three of an arm's finished seeds have the figure; "" if all have it."""
    n, finished = figure(row, f"{key}_n"), figure(row, "seeds_finished")
    return f" (n = {n:g})" if n is not None and finished is not None and n < finished else ""


def rank_words(results: Results, how: str) -> str:
    """Return a sentence on the figure and the tests behind the ranks, or "" if nothing is ranked."""
    if results.primary is None or not results.ranks:
        return ""
    words = figure_words(results.primary)
    return f"Arms are ranked by the {words}; only arms that are separated limit an arm's rank ({how}). "


def seeds(row: Row, key: str) -> Cell:
    """Return the number of finished seeds, and the number of started ones if some did not finish."""
    n, started = row["seeds_finished"], row["seeds_asked"]
    return Cell(str(n) if n == started else f"{n} of {started}", figure(row, "seeds_finished"))


def rank(row: Row, key: str) -> Cell:
    """Return the places that an arm may have (1, or 2–4), or a dash if nothing is compared."""
    places = [f"{row[f'{key}_{end}']}" for end in ("best", "worst") if row.get(f"{key}_{end}") is not None]
    return Cell(span(places, "–") or DASH, figure(row, f"{key}_best"))


def span(values: Sequence[object], to: str = " to ") -> str:
    """Return the first and the last of ordered values, or one value if they are equal."""
    return to.join(dict.fromkeys(map(str, [*values[:1], *values[-1:]])))


def usable(row: Row, key: str) -> Cell:
    """Return the usable length over the seeds, or its range, with "≥" if the longest length still passes.

    `key` is usable_length or usable_length_fixed, in tokens, or either with _multiple, in multiples of L.
    """
    shortest = figure(row, f"{key}_min")
    if shortest is None:
        return Cell(DASH)
    unit = multiple if key.endswith("multiple") else count
    passes = {end: row[f"{key.removesuffix('_multiple')}_{end}_at_least"] is True for end in ("min", "max")}
    ends = []
    for end, at_least in passes.items():
        length = figure(row, f"{key}_{end}") or 0.0
        ends.append(f"{'≥ ' if at_least else ''}{unit(length)}" if length else "< L")
    return Cell(span(ends), shortest)


def to_target(row: Row, key: str) -> Cell:
    """Return the mean tokens to target, or how many runs reached it if some did not."""
    reached = key.replace("tokens_to_target", "reached")
    hits, n = figure(row, reached), figure(row, f"{reached}_of")
    if hits is None or n is None:
        return Cell(DASH)
    tokens, half_width = _estimate(row, key)
    if tokens is not None:
        half = f" ± {quantity(half_width)}" if half_width else ""
        return Cell(f"{quantity(tokens)}{half}", tokens)
    if hits == 0:
        return Cell("> budget")
    return Cell(f"{hits:g} of {n:g} reached")


def over_reference(row: Row, key: str) -> Cell:
    """Return the ratio of an arm's time to target to the reference's, or a bound if runs were cut off."""
    if row.get("reference") is True:
        return Cell("reference")
    kind, n = row.get(f"{key}_kind"), figure(row, f"{key}_n")
    if kind in ("at_least", "at_most"):
        sign, end = (">", "low") if kind == "at_least" else ("<", "high")
        bound = figure(row, f"{key}_{end}")
        single = " (one seed)" if n == 1 else ""
        return Cell(f"{sign} ×{number(bound, 3)}{single}", bound)
    ratio = figure(row, key)
    if ratio is None:
        return Cell(DASH)
    low, high = figure(row, f"{key}_low"), figure(row, f"{key}_high")
    ends = "" if low is None else f" [{number(low, 3)}, {number(high, 3)}]"
    return Cell(f"×{number(ratio, 3)}{ends}{fewer(row, key)}", ratio)


def position(row: Row, key: str) -> Cell:
    """Return a position over the seeds, or its range, and how many seeds have it unless all do."""
    n, hits = figure(row, f"{key}_of"), figure(row, f"{key}_found")
    if not n:
        return Cell(DASH)
    first = figure(row, f"{key}_min")
    if first is None:
        return Cell("none")
    ends = [count(figure(row, f"{key}_{end}")) for end in ("min", "max")]
    return Cell(span(ends) + ("" if hits == n else f" ({hits:g} of {n:g})"), first)


def probability(row: Row, key: str) -> Cell:
    p = figure(row, key)
    return Cell(f"< {SMALLEST_P:g}" if p is not None and p < SMALLEST_P else number(p, 2), p)


def figure_column(title: str = "Figure") -> Column:
    """Return the column that names each row's loss or gain."""
    return Column("figure", title, lambda row, key: Cell(figure_title(str(row[key]))), number=False)


def figure_title(column: str) -> str:
    """Return the title of a column: sliding_8x -> Sliding loss at 8 L."""
    return f"{(LOSSES | BITS | GAINS)[family(column)]} at {_length(column)}"


def figure_words(column: str) -> str:
    """Return the title for use inside a sentence: sliding_8x -> sliding loss at 8 L."""
    title = figure_title(column)
    return title[0].lower() + title[1:]


def figure_place(column: str) -> str:
    """Return the windows and length, for use inside a sentence: sliding_8x -> in sliding windows at 8 L."""
    return f"in {WINDOWS[family(column)]} at {_length(column)}"


def _length(column: str) -> str:
    return multiple(measures.multiple(column))


def scored(results: Results, family: str) -> list[float]:
    """Return the multiples of L at which at least one arm has a figure of this family."""
    return [
        k for k in results.multiples if any(f"{family}_{name(k)}" in item.figures for item in results.arms)
    ]


def loss_family(results: Results) -> str:
    """Return the family of losses that has the protocol and unit of the tested figure."""
    return "sliding" if results.primary is None else family(results.primary)


def nats_family(results: Results) -> str:
    """Return the family of losses in nats per token in the tested protocol."""
    tested = loss_family(results)
    return next((family for family, bits in measures.IN_BITS.items() if bits == tested), tested)


def bars(results: Results) -> str:
    """Return a sentence on the bars and bands around means."""
    return _over_seeds(results, "Means over seeds with 95 % Student-t intervals, which may leave the frame.")


def scale(panels: Sequence[object]) -> str:
    """Return a sentence on the shared scale of several panels."""
    return "" if len(panels) < 2 else "All arms share one scale. "


def half_widths(results: Results) -> str:
    """Return a sentence on the half-widths in a shaded table."""
    how = "± is half their 95 % Student-t interval, which the paper figure omits; the CSV file has it."
    return _over_seeds(results, f"Means over seeds; {how}")


def _over_seeds(results: Results, how: str) -> str:
    return how if results.seeds > 1 else "One seed per arm: no interval."


def chance(results: Results) -> str:
    """Return what the intervals of differences are taken over, in words."""
    return "seeds and documents" if results.documents else "seeds"


def distinct(texts: Iterable[str], limit: int) -> str:
    """Return the distinct non-empty texts in their order, as a list in words: `a, b and c`."""
    return listing(list(dict.fromkeys(filter(None, texts))), limit)


def training_length(results: Results) -> str:
    """Return the training length for an axis label, or "" if the arms differ in it."""
    return "" if results.context_length is None else f" (L = {results.context_length:,})"


def usable_keys(results: Results) -> tuple[str, str]:
    """Return the columns of both usable lengths: in tokens, or in multiples of L if the arms differ in L."""
    unit = "_multiple" if results.context_length is None else ""
    return f"{RELATIVE}{unit}", f"{FIXED}{unit}"


def fixed_limit(results: Results) -> str:
    """Return the loss limit of usable_length_fixed in words."""
    limit = "" if results.fixed_limit is None else f"{number(results.fixed_limit)} nats, "
    return f"{limit}the sliding loss of {results.reference.arm.label} at L plus 5 %"
