"""Trained models under other rotations: their usable length, and the price at the training length."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from poslab.analysis.curves import Values, by_length, by_position, in_bits, points
from poslab.analysis.estimates import ArmFigures
from poslab.analysis.rescalings import Lines
from poslab.analysis.results import Results
from poslab.analysis.sheets import PRICE, Row, Rows, reach_columns, rescaled_arms_sheet, rescaled_sheet
from poslab.analysis.statistics import paired
from poslab.config.text import listing
from poslab.record.losses import TRAINED
from poslab.record.measures import MULTIPLES, TOLERANCES, Value, name
from poslab.record.reader import Run
from poslab.record.schema import RESCALED
from poslab.report import cells
from poslab.report.charts import PanelChart, Series
from poslab.report.document import Section
from poslab.report.formatting import interval, multiple, number
from poslab.report.sections.extrapolation import loss_by_length, position_chart
from poslab.report.tables import Cell, Column, Table

START = 1 / 4  # of L: the first position shown; the first tokens of a window would dominate the panel
CEILING = 1.5  # of the highest plateau as trained: upper end of y; failed lines would dominate the panel

Drawn = list[tuple[ArmFigures, tuple[Series, ...]]]  # arms, each with a line per rotation


def section(results: Results) -> Section | None:
    """Return losses under other rotations, or None if no run was measured under them."""
    if not results.rescaled:
        return None
    return Section(
        "rescaled",
        "Rescaled at evaluation",
        "Each trained model is evaluated again under other rotations, and trained further only if a name "
        "says so. No other figure of this report includes these losses.",
        findings(results),
        tuple(chart for chart in (_loss_by_length(results), _loss_by_position(results)) if chart.panels),
        (rescaled_table(results),),
        {"rescaled": rescaled_sheet(results), "rescaled_arms": rescaled_arms_sheet(results)},
    )


def rescaled_table(results: Results) -> Table:
    """Return one row per arm and rotation: losses by length, price at L, usable length, failure position."""
    lines = [line for _, of_arm in results.rescaled for line in of_arm]
    lengths = [
        k
        for k in results.multiples
        if k in MULTIPLES or any(f"loss_{name(k)}" in line.figures for line in lines)
    ]
    looks = {line.arm.label: line.arm.look for line in lines}

    def price(row: Row, key: str) -> Cell:
        return Cell("reference") if row["rescale"] == TRAINED else cells.price(row, key)

    unit = "Multiples of L" if results.context_length is None else "Tokens"
    columns = (
        cells.words("arm", "Arm"),
        cells.named(looks, "line", "Rotation"),
        *(Column(f"loss_{name(k)}", multiple(k), cells.loss, "Loss, nats per token") for k in lengths),
        Column(PRICE, "Price at L", price, "Percent"),
        Column(cells.usable_keys(results)[0], "Usable length", cells.usable, unit),
        Column("failure_position", "Fails from", cells.position, "Position"),
        Column("rise_position", "Rises for good from", cells.position, "Position"),
    )
    allowed = f"{100 * TOLERANCES['']:g} %"
    caption = (
        "Loss is taken in non-overlapping windows; the price is its change at L from the model as trained. "
        "Usable length is the longest tested length up to which the sliding-window loss stays within "
        f"{allowed} of the loss at L as trained; < L: not even at L. A line fails from the first bin of "
        f"positions past L with a loss more than {allowed} above the plateau as trained, the mean loss at "
        "positions L/2 to L. It rises for good once all further bins are that far above its own plateau."
    )
    sources = "rescaled_arms.csv", RESCALED.file
    return Table(
        "By arm and rotation", caption, columns, rescaled_arms_sheet(results)[1], sources, grouped=True
    )


def findings(results: Results) -> tuple[str, ...]:
    """Return one sentence per arm: the rescaling with the longest usable length, and its price."""
    sure = "If seeds differ, the shortest usable length counts. No difference is tested."
    found = tuple(filter(None, (_furthest(*of_arm, results) for of_arm in results.rescaled)))
    return (*found, sure) if found else ()


def in_short(results: Results) -> Iterator[str]:
    """Yield the best rotation for the reference at the tested length, and its loss at L.

    With two or more seeds, add the interval of its gain over seeds; rotations whose interval includes 0 do
    not count.
    """
    family, tested = cells.nats_family(results), results.tested_multiple
    figure, label = f"{family}_{name(tested)}", results.reference.arm.label
    lines = next((lines for item, lines in results.rescaled if item is results.reference), ())
    trained, seeds = results.reference, results.reference.by_seed(figure)
    # A mean over other seeds would not be comparable.
    losses = [
        (loss, line, gap)
        for line in lines[1:]
        if (loss := line.mean(figure))
        and line.by_seed(figure).keys() == seeds.keys()
        and (gap := paired(line.by_seed(figure), seeds)) is not None
    ]
    if not losses or (as_trained := trained.mean(figure)) is None:
        return
    lower = [item for item in losses if item[0] < as_trained and (item[2].decided or item[2].n == 1)]
    lowest, best, gap = min(lower, key=lambda item: item[0], default=(as_trained, trained, None))
    if gap is None:
        words = "No other rotation at evaluation is shown to lower the loss of"
        yield f"{words} {label} at {multiple(tested)}."
        return
    sure = ""
    if gap.half_width is not None:
        sure = f" ({interval(gap.mean, gap.half_width, 3, sign=True)} nats over seeds, not corrected)"
    price, price_trained = (number(line.mean(f"{family}_{name(1)}")) for line in (best, trained))
    at_length = "" if tested == 1 else f", and {price} instead of {price_trained} at L"
    yield (
        f"With {best.arm.label} at evaluation, the loss of {label} is {number(lowest)} instead of "
        f"{number(as_trained)} at {multiple(tested)}{sure}{at_length}."
    )


def _furthest(item: ArmFigures, lines: Lines, results: Results) -> str:
    """Return the rescalings with the longest usable length, if longer than as trained; "" without lengths."""
    lengths = [line.by_seed("usable_length_multiple") for line in lines]
    reach = {
        i: min(by_seed.values())
        for i, (line, by_seed) in enumerate(zip(lines, lengths, strict=True))
        if 0 < len(by_seed) == len(line.rows)
    }
    if not reach:
        return ""
    trained = reach.pop(0, 0.0)
    furthest = max(reach.values(), default=0.0)
    if furthest <= trained:
        return f"{item.arm.label}: no rescaling has a longer usable length."
    best = []
    for line in (lines[i] for i, length in reach.items() if length == furthest):
        row = reach_columns(line)
        usable = cells.usable(row, cells.usable_keys(results)[0]).text
        best.append(f"{line.arm.label} (to {usable}, loss at L {cells.price(row, PRICE).text} %)")
    return f"{item.arm.label}: longest usable length with {listing(best)}."


def _loss_by_length(results: Results) -> PanelChart:
    bits = in_bits(run for _, lines in results.rescaled for line in lines for run in line.arm.finished)
    whole = loss_by_length(results, "loss", bits)
    drawn = _drawn(results, lambda run: by_length(run, "non_overlapping", results.multiples, bits))
    panels = [
        replace(
            whole,
            title=item.arm.label,
            x_label=f"Evaluation length (L = {item.arm.context_length:,})",
            series=lines,
        )
        for item, lines in drawn
    ]
    unit = "Bits per byte" if bits else "Loss"
    caption = (
        f"{unit} on the same text at every length, scored on all targets of non-overlapping windows, for "
        f"each model as trained and under other rotations. {cells.scale(panels)}{cells.bars(results)}"
    )
    title = f"{unit} by evaluation length under other rotations"
    name, rows = f"rescaled_{whole.name}", [row for part in drawn for row in _rows(results, *part)]
    return PanelChart(name, title, caption, tuple(panels), "Rotations", rows)


def _loss_by_position(results: Results) -> PanelChart:
    def values(run: Run) -> Values:
        length = run.context_length
        return by_position(run, 1 if results.context_length else length, START * length)

    chart, drawn = "rescaled_loss_by_position", _drawn(results, values)
    plateaus = {item.arm.label: item.mean("plateau") for item, _ in drawn}
    known = [plateau for plateau in plateaus.values() if plateau]
    levels = {label: at and (1 + TOLERANCES[""]) * at for label, at in plateaus.items()}
    ceiling = CEILING * max(known) if known else None
    whole = position_chart(results, chart, "", "", [line for _, lines in drawn for line in lines])
    whole = replace(whole, ceiling=ceiling)
    panels, rows = [], list[dict[str, Value]]()
    for item, lines in drawn:
        label, level = item.arm.label, levels[item.arm.label]
        panels.append(replace(whole, title=label, series=lines, level=level))
        rows += [{**row, "failure_level": level} for row in _rows(results, item, lines)]
    caption = (
        f"Loss at each position of the longest windows from {multiple(START)} on, with four bins per octave. "
        f"The dashed line past L is {100 * TOLERANCES['']:g} % above the plateau of the model as trained; a "
        f"line above it has failed. Lines may leave the frame at {CEILING:g} times the highest plateau. "
        f"{cells.scale(panels)}{cells.bars(results)}"
    )
    title = "Loss by position under other rotations"
    return PanelChart(chart, title, caption, tuple(panels), "Rotations", rows)


def _drawn(results: Results, values: Callable[[Run], Values]) -> Drawn:
    """Return the arms with anything to draw, each with a series for every line that has points."""
    drawn = []
    for item, lines in results.rescaled:
        means = [(line.arm, points(map(values, line.arm.finished))) for line in lines]
        series = tuple(Series(arm.look, arm.label, at) for arm, at in means if at)
        drawn += [(item, series)] if series else []
    return drawn


def _rows(results: Results, item: ArmFigures, drawn: tuple[Series, ...]) -> Rows:
    lines = next(lines for of, lines in results.rescaled if of is item)
    rescale = {line.arm.label: line.rows[0]["rescale"] for line in lines}
    return [
        {"arm": item.arm.label, "rescale": rescale[series.label], "line": series.label, **point.row}
        for series in drawn
        for point in series.points
    ]
