"""Several budgets or sizes: figures and tables of gaps to the reference, orders, crossings and trends."""

from collections.abc import Sequence

from poslab.analysis.curves import Point
from poslab.analysis.estimates import estimate_columns
from poslab.analysis.ladder import Crossing, Ladder, Rung, Trend, agreement, crossings, trend
from poslab.analysis.palette import arm_numbers
from poslab.analysis.results import Results
from poslab.analysis.sheets import Row, Rows, difference_columns, flat
from poslab.analysis.statistics import FALSE_ALARMS
from poslab.config.text import listing
from poslab.record.measures import Value, unit
from poslab.report import cells
from poslab.report.charts import LineChart, PanelChart, Series, Span
from poslab.report.document import Section, sheets_of
from poslab.report.formatting import number, quantity
from poslab.report.sections.ladder_sentences import named, trend_findings
from poslab.report.tables import Cell, Column, Table
from poslab.report.verdict import NAMED

SPAN = 0.1  # room for the bar of a crossing, as a share of the height of the lines
BARS = (
    " Two arms change places between the ends of a bar: the gap between them has opposite signs at the two "
    "ends, with intervals that exclude 0. Dashed: not significant after Holm's correction."
)


def table(results: Results, rungs: Ladder) -> Table:
    """Return the first table of the report: order and gaps to the reference at each budget and size."""
    rows: Rows = []
    for figure in rungs.figures:
        for rung in rungs.rungs:
            row: dict[str, Value] = {"figure": cells.figure_title(figure), **_described(rung)}
            row["order"] = ", ".join(rung.order(figure))
            for arm in rungs.compared:
                gap = rung.gap(arm, rungs.reference, figure)
                row |= difference_columns(f"gap_{arm}", gap)
            rows.append(row)
    sizes = [Column("parameters", "Parameters", cells.rounded(quantity), number=False)]
    columns = (
        cells.words("figure", "Loss"),
        *(sizes if len(rungs.sizes) > 1 else []),
        Column("tokens_per_parameter", "Tokens per parameter", cells.significant(2), number=False),
        cells.words("order", "Order of means"),
        *(Column(f"gap_{arm}", arm, cells.nats, f"Gap to {rungs.reference}") for arm in rungs.compared),
    )
    return Table("Answer", "", columns, rows, ("ladder.csv", "ladder_order.csv"), grouped=True)


def section(results: Results) -> Section | None:
    """Return the figures and tables of a study with several budgets or sizes, or None without these."""
    if (rungs := results.rungs) is None:
        return None
    trends = [
        (figure, found)
        for figure in rungs.figures
        for arm in rungs.compared
        if (found := trend(rungs, arm, figure)) is not None
    ]
    every = (
        _gaps_table(results, rungs),
        _orders_table(rungs),
        _crossings_table(rungs),
        _trends_table(rungs, trends),
    )
    tables = tuple(table for table in every if table.records)
    return Section(
        "ladder",
        "By budget" if len(rungs.sizes) == 1 else "By size and budget",
        f"A gap is an arm's loss {_definition(results, rungs)}",
        findings=tuple(trend_findings(rungs, trends)),
        charts=tuple(
            _chart(rungs, figure, f"Gaps in the {cells.figure_words(figure)}.") for figure in rungs.figures
        ),
        tables=tables,
        sheets=sheets_of(*tables),
    )


def lead(results: Results, rungs: Ladder) -> PanelChart:
    """Return the section's first figure for the first screen, where its caption defines the gaps."""
    place = cells.figure_place(rungs.figures[0])
    return _chart(rungs, rungs.figures[0], f"The loss {place} {_definition(results, rungs)}")


def _together(rungs: Ladder) -> list[list[Rung]]:
    """Return the rungs of each panel: two or more with about the same tokens per parameter, else all."""
    return [list(part) for part in rungs.shares if len(part) > 1] or [list(rungs.rungs)]


def _chart(rungs: Ladder, figure: str, caption: str) -> PanelChart:
    """Return the gap to the reference in one loss, by budget or compute."""
    numbers, together = _looks(rungs), _together(rungs)
    crossed = crossings(rungs, figure)[0]
    drawn = [
        [
            Series(numbers[arm], arm, line)
            for arm in rungs.contenders
            if (line := _line(rungs, part, arm, figure))
        ]
        for part in together
    ]
    every = [line for lines in drawn for line in lines]
    ends = [
        0.0,
        *(at.mean + side * (at.half_width or 0) for s in every for at in s.points for side in (-1, 1)),
    ]
    low, high = min(ends), max(ends)
    spans = [_spans(rungs, part, crossed, low, SPAN * (high - low)) for part in together]
    low -= SPAN * (high - low) * (max(map(len, spans)) + 0.5) if any(spans) else 0.0
    panels = [
        LineChart(
            f"gap_{figure}",
            _shares(part) if len(part) < len(rungs.rungs) else "",
            "",
            "Training tokens per parameter" if len(rungs.sizes) == 1 else "Training compute (FLOP)",
            f"Gap to {rungs.reference} ({unit(figure)})",
            tuple(lines),
            tuple(
                (x := _x(rungs, rung), number(x, 2) if len(rungs.sizes) == 1 else quantity(x))
                for rung in part
            ),
            base=10,
            frame=(low, high),
            spans=marked,
        )
        for part, lines, marked in zip(together, drawn, spans, strict=True)
    ]
    over = "tokens per parameter" if len(rungs.sizes) == 1 else "compute"
    caption += BARS if any(spans) else ""
    title = f"Gap to {rungs.reference} by {over}, {cells.figure_words(figure)}"
    rows = [row for panel in panels for row in panel.rows]
    return PanelChart(f"gap_{figure}", title, caption, tuple(panels), "Arms", rows)


def _spans(
    rungs: Ladder, part: Sequence[Rung], crossed: Sequence[Crossing], y: float, row: float
) -> tuple[Span, ...]:
    """Return a bar for each crossing between two rungs of a panel, one below the other from y down."""
    spans = []
    for cross in crossed:
        if cross.before in part and cross.after in part:
            low, high = (_x(rungs, rung) for rung in (cross.before, cross.after))
            y -= row
            dashed = cross.p_holm >= FALSE_ALARMS
            spans.append(Span(low, high, y, f"{cross.arm}, {cross.against}", dashed))
    return tuple(spans)


def _definition(results: Results, rungs: Ladder) -> str:
    """Return what a gap is after "the loss", what its interval covers, and which gaps no figure has."""
    one_seed = any(1 in rungs.seeds(figure) for figure in rungs.figures)
    how = f"95 % intervals over {cells.chance(results)}, not corrected for their number."
    how += " A gap without an interval is from one seed." if one_seed else ""
    left = [named(rungs, rung) for rung in rungs.rungs if not any(rung in part for part in _together(rungs))]
    only = f" Only in the tables: {listing(left, NAMED)}." if left else ""
    sure = how if results.seeds > 1 else "One seed: no interval."
    return f"minus that of {rungs.reference} at the same size and budget, paired by seed. {sure}{only}"


def _looks(rungs: Ladder) -> dict[str, int]:
    """Return the number of each contender's look."""
    arms = {label: item.arm for rung in rungs.rungs for label, item in rung.arms.items()}
    ordered = [label for label in rungs.contenders if label in arms]
    numbers = arm_numbers((arms[label].pos, arms[label].attention) for label in ordered)
    return dict(zip(ordered, numbers, strict=True))


def _line(rungs: Ladder, part: Sequence[Rung], arm: str, figure: str) -> tuple[Point, ...]:
    points = []
    for rung in part:
        if (gap := rung.gap(arm, rungs.reference, figure)) is not None:
            values, base = (rung.arms[label].by_seed(figure) for label in (arm, rungs.reference))
            gaps = [values[seed] - base[seed] for seed in values.keys() & base.keys()]
            half = None if arm == rungs.reference else gap.half_width
            ends = min(gaps), max(gaps)
            points.append(Point(gap.n, gap.mean, half, *ends, _x(rungs, rung), _described(rung)))
    return tuple(points)


def _x(rungs: Ladder, rung: Rung) -> float:
    """Return the x of a rung: its tokens per parameter, or its compute if sizes differ."""
    return rung.share if len(rungs.sizes) == 1 else rung.flops


def _described(rung: Rung) -> dict[str, Value]:
    return {"parameters": rung.parameters, "tokens_per_parameter": rung.share, "flops": rung.flops}


def _shares(part: Sequence[Rung]) -> str:
    """Return the tokens per parameter, in words, of rungs that have about the same."""
    ends = [number(share, 2) for share in sorted(rung.share for rung in part)]
    return f"{cells.span(ends)} tokens per parameter"


def _rung_column(rungs: Ladder) -> Column:
    return cells.words("rung", "Size and budget" if len(rungs.sizes) > 1 else "Budget")


def _gaps_table(results: Results, rungs: Ladder) -> Table:
    """Return the table of ladder.csv: one row per rung and arm, with losses and gaps."""
    rows: Rows = []
    for rung in rungs.rungs:
        for arm in (label for label in rungs.contenders if label in rung.arms):
            row: dict[str, Value] = {"rung": named(rungs, rung), **_described(rung), "arm": arm}
            row["reference"] = arm == rungs.reference
            for figure in rungs.figures:
                row |= estimate_columns(rung.arms[arm].figures, [figure])
                gap = None if row["reference"] else rung.gap(arm, rungs.reference, figure)
                row |= difference_columns(f"gap_{figure}", gap)
                row[f"gap_{figure}_p"] = None if gap is None else gap.p
            rows.append(row)

    def against(row: Row, key: str) -> Cell:
        return Cell("reference") if row["reference"] is True else cells.nats(row, key)

    columns = [_rung_column(rungs), cells.named(_looks(rungs))]
    for figure in rungs.figures:
        columns += [Column(figure, "Loss", cells.loss, cells.figure_title(figure))]
        columns += [Column(f"gap_{figure}", f"Gap to {rungs.reference}", against, cells.figure_title(figure))]
    units = cells.distinct(map(unit, rungs.figures), NAMED)
    return Table("Losses and gaps", f"In {units}.", tuple(columns), rows, ("ladder.csv",), grouped=True)


def _orders_table(rungs: Ladder) -> Table:
    """Return the table of ladder_order.csv: each rung's order, and its agreement with `Ladder.whole`."""
    rows: Rows = []
    for rung in rungs.rungs:
        row: dict[str, Value] = {"rung": named(rungs, rung), **_described(rung)}
        for figure in rungs.figures:
            row[f"order_{figure}"] = ", ".join(rung.order(figure))
            same = agreement(rungs, rung, figure)
            row |= {f"{key}_{figure}": value for key, value in same.items()}
        rows.append(row)

    def accuracy(row: Row, key: str) -> Cell:
        same, pairs, sure, of = (
            cells.figure(row, f"{name}_{key}") for name in ("same", "pairs", "same_decided", "pairs_decided")
        )
        return Cell(
            f"{same:g} of {pairs:g} ({sure:g} of {of:g})",
            (same / pairs) if same is not None and pairs else None,
        )

    columns = [_rung_column(rungs)]
    for figure in rungs.figures:
        group = cells.figure_title(figure)
        columns.append(Column(f"order_{figure}", "Order of means", cells.text, group, number=False))
        columns.append(Column(figure, "Decision accuracy", accuracy, group))
    last = "last row" if rungs.whole is rungs.rungs[-1] else "last row with all arms"
    caption = (
        f"Decision accuracy: the number of pairs of arms with the same order of means as in the {last} "
        f"({named(rungs, rungs.whole)}). In brackets: only pairs with an interval there that excludes 0."
    )
    return Table("Order and decision accuracy", caption, tuple(columns), rows, ("ladder_order.csv",))


def _crossings_table(rungs: Ladder) -> Table:
    """Return the table of ladder_crossings.csv: pairs with gaps of opposite signs and decided intervals."""
    rows: Rows = []
    pairs_tested = []
    for figure in rungs.figures:
        crossed, pairs = crossings(rungs, figure)
        pairs_tested.append(str(pairs))
        rows += [
            {"figure": figure, **flat(cross)}
            | {"before": named(rungs, cross.before), "after": named(rungs, cross.after)}
            for cross in crossed
        ]
    columns = (
        cells.figure_column("Loss"),
        *(cells.words(key, key.capitalize()) for key in ("arm", "against", "before")),
        Column("gap_before", "Gap", cells.nats),
        cells.words("after", "After"),
        Column("gap_after", "Gap", cells.nats),
        Column("p_holm", "p (Holm)", cells.probability),
    )
    caption = (
        "The gap between two arms has opposite signs before and after, and both 95 % intervals exclude 0. p "
        "is the larger p of the two, corrected over the pairs of gaps in that loss "
        f"({cells.distinct(pairs_tested, NAMED)})."
    )
    return Table("Crossings", caption, columns, rows, ("ladder_crossings.csv",))


def _trends_table(rungs: Ladder, trends: Sequence[tuple[str, Trend]]) -> Table:
    """Return the table of ladder_trends.csv: fit 1 of each arm's gap."""
    rows = [{"figure": figure, **flat(found), "reading": found.reading} for figure, found in trends]
    share = Column("per_tenfold_share", "Per tenfold tokens per parameter", cells.nats)
    columns = (
        cells.figure_column("Loss"),
        cells.named(_looks(rungs)),
        Column("per_tenfold", "Per tenfold compute", cells.nats),
        *([share] if any(found.per_tenfold_share for _, found in trends) else []),
        Column("residual", "Residual", cells.significant(2)),
        Column("last", "Gap at the highest compute", cells.nats),
        Column("change", "Change from the first", cells.nats),
        cells.words("reading", "Reading"),
    )
    caption = (
        "Least-squares fit of each gap against the logarithm of compute, and against that of tokens per "
        "parameter if a fit can separate the two. A slope's interval also covers how far the gaps scatter "
        "about the line beyond their noise. A trend is seen if the interval of the slope, or that of the "
        "change from the first gap to the last, excludes 0, and the slope keeps its sign when any one size "
        "(or row, with fewer than three sizes) is left out. Residual: root mean square of what the fit "
        "leaves. The fit describes only what lies between the first and the last row."
    )
    return Table("Trends", caption, columns, rows, ("ladder_trends.csv",))
