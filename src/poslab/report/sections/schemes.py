"""What the trained schemes do: biases and rotations by distance, and how far back attention then reaches."""

from collections.abc import Callable, Sequence

from poslab.analysis import schemes
from poslab.analysis.curves import Point
from poslab.analysis.palette import head_number
from poslab.analysis.results import Results
from poslab.analysis.sheets import Row, Rows
from poslab.config.text import listing
from poslab.record.scheme import SchemeRecord
from poslab.report.cells import arm_column, bars, fewer, figure, loss, scale, training_length
from poslab.report.charts import LineChart, PanelChart, Series, octaves
from poslab.report.document import Section
from poslab.report.formatting import count, number
from poslab.report.sections import extrapolation
from poslab.report.tables import Cell, Column, Table

DEPTH = 12.0  # nats under its highest bias where a head's line ends: such a key weighs e^-12 of the other
BOUND_SOURCE = "Su et al. 2021, section 3.4.3"
BOUND_OVER = 0  # the distance in tokens whose bound the others are divided by
AN_OCTAVE = 12  # points of a line that are drawn, where there are more
COUNTED_FROM = 0  # layers, heads and pairs

MEASURED: dict[str, Callable[[SchemeRecord], object]] = {
    "biases": lambda scheme: scheme.bias,
    "rotations": lambda scheme: scheme.wavelengths,
    "bound of decay": lambda scheme: scheme.bound,
}


def section(results: Results) -> Section | None:
    """What the schemes do, or None where no record says it."""
    drawn = (bias_chart(results), bound_chart(results))
    charts = tuple(chart for chart in drawn if chart is not None)
    turning = wavelengths_table(results)
    tables = () if turning is None else (turning,)
    if not charts and not tables:
        return None
    return Section(
        "schemes",
        "What the schemes do",
        "Read from the trained models: what each scheme adds to the logits, how it turns queries and keys, "
        f"and how far back attention then reaches. Layers and heads are counted from {COUNTED_FROM}.",
        _findings(results),
        charts,
        tables,
        schemes.sheets(results),
    )


def _findings(results: Results) -> tuple[str, ...]:
    """Which arms add or turn nothing, and what is not on record."""
    named: dict[str, list[str]] = {}
    for item in results.arms:
        records = [run.scheme for run in item.arm.finished]
        if records and all(each.bias == {} and each.wavelengths == {} for each in records):
            words = "Neither a bias nor a rotation set by the distance in tokens"
            named.setdefault(words, []).append(item.arm.label)
        for what, of in MEASURED.items():
            if any(of(each) is None for each in records):
                named.setdefault(f"Of some runs, no {what} on record", []).append(item.arm.label)
    return tuple(f"{words}: {listing(labels)}." for words, labels in named.items())


def bias_chart(results: Results) -> PanelChart | None:
    """Bias by distance, a panel an arm and a line a head, or None where no scheme adds one."""
    drawn: list[tuple[str, list[tuple[int, tuple[Point, ...], tuple[Point, ...]]]]] = []
    rows: Rows = []
    for item in results.arms:
        heads = schemes.biases_by_distance(item.arm.finished)
        layers = sorted({layer for layer, _ in heads})
        for layer in layers:
            title = item.arm.label + (f", layer {layer}" if len(layers) > 1 else "")
            lines = [(head, whole, shown(whole)) for (at, head), whole in heads.items() if at == layer]
            rows += [
                {"arm": item.arm.label, "layer": layer, "head": head, **point.row}
                | {"distance_plus_1": int(point.x), "drawn": point.x in drawn_at}
                for head, whole, line in lines
                for drawn_at in [{point.x for point in line}]
                for point in whole
            ]
            if layer in (layers[0], layers[-1]):
                drawn.append((title, lines))
    if not drawn:
        return None
    legend = sorted({head for _, lines in drawn for head, _, _ in lines})
    every = [Series(0, "", line) for _, lines in drawn for _, _, line in lines]
    panels = tuple(
        LineChart(
            "bias_by_distance",
            title,
            "",
            "Distance + 1 in tokens" + training_length(results),
            "Bias (nats)",
            2,
            octaves(every, count),
            _mark(results),
            tuple(Series(head_number(head), f"head {head}", line) for head, _, line in lines),
        )
        for title, lines in drawn
    )
    ends = any(len(whole) > len(line) for _, lines in drawn for _, whole, line in lines)
    caption = (
        "What the trained scheme adds to the logit of a key at a distance, a line a head; layers that share "
        "one scheme are shown once, of others the first and the last. "
        + (f"A line ends where it falls {DEPTH:g} nats under its highest. " if ends else "")
        + scale(panels)
        + bars(results)
    )
    return PanelChart(
        "bias_by_distance",
        "Bias by distance",
        caption,
        panels,
        tuple((head_number(head), f"head {head}") for head in legend),
        "Heads",
        rows,
    )


def shown(line: Sequence[Point]) -> tuple[Point, ...]:
    """The part of a head's line that is drawn: from its highest point on to where it is DEPTH under it."""
    top = max(range(len(line)), key=lambda i: line[i].mean)
    low = line[top].mean - DEPTH
    first = next((i + 1 for i in range(top, -1, -1) if line[i].mean < low), 0)
    last = next((i for i in range(top, len(line)) if line[i].mean < low), len(line))
    return thinned(line[first:last])


def thinned(line: Sequence[Point]) -> tuple[Point, ...]:
    """A long line with no more than AN_OCTAVE points an octave, its ends among them."""
    thin: list[Point] = []
    for point in line:
        if not thin or point.x >= thin[-1].x * 2 ** (1 / AN_OCTAVE) * (1 - 1e-9):
            thin.append(point)
    if line and thin[-1] is not line[-1]:
        thin.append(line[-1])
    return tuple(thin)


def bound_chart(results: Results) -> LineChart | None:
    """The upper bound of decay of the arms that turn queries and keys, or None where none does."""
    series = extrapolation.lines(
        results, schemes.bound_by_distance, lambda by_seed: thinned(schemes.over_seeds(by_seed))
    )
    if not series:
        return None
    several = any(len(run.scheme.bound or {}) > 1 for run in results.finished)
    caption = (
        "How large the part of a logit that rotation leaves can be at a distance, over that at distance "
        f"{BOUND_OVER}: the mean over pairs of |S_j|, S_j being the sum of the first j pairs' "
        f"exp(i t theta) ({BOUND_SOURCE})"
        + ("; the mean over layers that have one of their own. " if several else ". ")
        + bars(results)
    )
    return LineChart(
        "rotation_bound",
        "Upper bound of decay by distance",
        caption,
        "Distance in tokens" + training_length(results),
        f"Bound, over that at distance {BOUND_OVER}",
        2,
        octaves(series, count),
        _mark(results),
        series,
    )


def _mark(results: Results) -> float | None:
    return None if results.context_length is None else float(results.context_length)


def wavelengths_table(results: Results) -> Table | None:
    """A row an arm that turns, or None where none does."""
    records = schemes.wavelengths_by_arm(results)
    if not records:
        return None
    columns = (
        arm_column(results),
        Column("pairs", "Pairs", _turns),
        Column("turning", "that turn", _turns),
        Column("fastest", "fastest", _turns, "Tokens to a turn"),
        Column("slowest", "slowest", _turns, "Tokens to a turn"),
        Column("under_a_turn_in_L", "within L", _turns, "Pairs that turn less than once"),
        Column("under_a_turn_in_longest", "within the longest", _turns, "Pairs that turn less than once"),
    )
    several = any(len({layer for layer, _ in run.scheme.wavelengths or {}}) > 1 for run in results.finished)
    caption = (
        "A pair of a query's or key's features turns once in as many tokens as its wavelength. One that "
        "turns less than once within the training length L was never seen through a whole turn and meets new "
        "angles past L; the longest is the longest length evaluated."
        + (" Pairs are counted over all layers that have rotations of their own." if several else "")
    )
    sources = "wavelengths.csv", "wavelength_pairs.csv"
    return Table("Wavelengths of the rotations", caption, columns, records, sources)


def _turns(row: Row, key: str) -> Cell:
    value = figure(row, f"{key}_mean")
    if value is None or row[f"{key}_half_width"]:
        return loss(row, key)
    # The same in every seed: no interval, and a count is whole.
    return Cell((f"{value:g}" if value.is_integer() else number(value)) + fewer(row, key), value)
