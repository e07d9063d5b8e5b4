"""What the rescaled arms reach and what it costs, as a table and in words that claim no more than it."""

from poslab.config.text import listing
from poslab.record.measures import MULTIPLES, TOLERANCES, name
from poslab.report.analysis.estimates import ArmFigures
from poslab.report.analysis.rescalings import Line, RescaledArm
from poslab.report.analysis.results import Results
from poslab.report.formatting import DASH, count, multiple, percents
from poslab.report.style import line_number
from poslab.report.tables import Cell, Column, Table, estimated, usable

TITLE = "Rescaled at evaluation"
PRICE = f"loss_change_from_trained_{name(1)}"


def about(results: Results) -> str:
    """What the section shows."""
    shown = (
        "" if len(results.rescaled) == len(results.arms) else " Only arms that were measured so are listed."
    )
    return (
        "Each trained model evaluated again under other rotations, with no training but what a name says: "
        f"lines of the same run, which leave every other figure of this report as it is.{shown}"
    )


def rescaled_table(results: Results) -> Table:
    """A row an arm and rotation: losses by length, the price at L, usable length, where it fails."""
    lines = [(one, line) for one in results.rescaled for line in one.lines]
    lengths = [
        k
        for k in results.multiples
        if k in MULTIPLES or any(f"loss_{name(k)}" in line.item.figures for _, line in lines)
    ]
    columns = [Column("Arm", number=False), Column("Rotation", number=False)]
    columns += [Column(multiple(k), "Loss, nats per token") for k in lengths]
    columns += [Column("Price at L", "Percent")]
    columns += [Column("Usable length", "Multiples of L" if results.context_length is None else "Tokens")]
    columns += [Column("Fails from", "Position"), Column("Rises for good from", "Position")]
    rows = tuple(
        (
            Cell(one.item.arm.label),
            Cell(line.label, arm=line_number(line.place)),
            *(Cell(estimated(line.item, f"loss_{name(k)}")) for k in lengths),
            Cell("reference" if line is one.lines[0] else price(line.item)),
            Cell(usable(line.item, results)),
            Cell(failed(line.item)),
            Cell(failed(line.item, "rise_position")),
        )
        for one, line in lines
    )
    allowed = f"{100 * TOLERANCES['']:g} %"
    caption = (
        "Loss is taken in non-overlapping windows; the price is its change at L from the model as trained. "
        "Usable length is the longest tested up to which the sliding-window loss stays within "
        f"{allowed} of the loss at L as trained, so a loss that is flat but high is not usable; < L: not "
        "even at L. A line fails from the first bin of positions past L that loses more than "
        f"{allowed} over the plateau of the model as trained, its mean loss on positions L/2 to L; it "
        "rises for good from the first bin after which all lose as much over its own plateau: how far it "
        "reaches, whatever it costs."
    )
    return Table(
        "rescaled_arms",
        "By arm and rotation",
        caption,
        tuple(columns),
        rows,
        "rescaled_arms.csv",
        grouped=True,
        by_run="rescaled.csv",
    )


def failed(item: ArmFigures, key: str = "failure_position") -> str:
    """A position over the seeds: one, or the range; how many have it where not all do."""
    answers = [row[f"{key}_found"] for row in item.rows if row[f"{key}_found"] is not None]
    found = sorted({value for row in item.rows if isinstance(value := row[key], int)})
    if not answers:
        return DASH
    if not found:
        return "none"
    fewer = "" if all(answers) else f" ({sum(answer is True for answer in answers)} of {len(answers)})"
    return " to ".join(count(value) for value in dict.fromkeys([found[0], found[-1]])) + fewer


def price(item: ArmFigures) -> str:
    """What a rescaling costs at L, in percent of the loss as trained."""
    found = item.figures.get(PRICE)
    return DASH if found is None else percents(found.mean, found.half_width)


def findings(results: Results) -> tuple[str, ...]:
    """A sentence an arm: where it fails as trained, which rescaling goes furthest, at what price."""
    said = [_finding(one, results) for one in results.rescaled]
    if max(len(one.item.rows) for one in results.rescaled) < 2:
        return (*said, "One seed: no interval, no winner claimed.")
    return (
        *said,
        "Where seeds differ, the shortest usable length decides. Descriptive: no difference between "
        "rotations is tested.",
    )


def _finding(one: RescaledArm, results: Results) -> str:
    said = [f"{one.item.arm.label} as trained: {_as_trained(one.lines[0], results)}."]
    said += [_furthest(one, results), _rises(one)]
    return " ".join(part for part in said if part)


def _furthest(one: RescaledArm, results: Results) -> str:
    """Which rescaling has the longest usable length, if one is longer than that as trained."""
    reach = {line.place: reached for line in one.lines if (reached := _reach(line.item)) is not None}
    furthest = max((reach[line.place] for line in one.lines[1:] if line.place in reach), default=None)
    if furthest is None:
        return "No usable length is defined for a rescaling."
    if furthest <= reach.get(one.lines[0].place, 0.0):
        return "No rescaling has a longer usable length."
    best = [
        f"{line.label} ({_tokens(line.item, results)}, loss at L {price(line.item)} %)"
        for line in one.lines[1:]
        if reach.get(line.place) == furthest
    ]
    return f"Longest usable length of the rescalings: {listing(best)}."


def _rises(one: RescaledArm) -> str:
    """Where each line's loss leaves its own plateau for good."""
    places = [(line.label, failed(line.item, "rise_position")) for line in one.lines]
    known = [
        f"{label} {'nowhere' if place == 'none' else f'from {place}'}"
        for label, place in places
        if place != DASH
    ]
    return f"For good over its own plateau: {listing(known)}." if known else ""


def _as_trained(line: Line, results: Results) -> str:
    allowed, fails = f"{100 * TOLERANCES['']:g} %", failed(line.item)
    said = {
        DASH: "",
        "none": f", nowhere {allowed} over its plateau",
    }.get(fails, f", {allowed} over its plateau from position {fails} on")
    length = _tokens(line.item, results)
    return f"usable to {length}{said}" if length != DASH else f"no usable length{said}"


def _tokens(item: ArmFigures, results: Results) -> str:
    length = usable(item, results)
    return length if results.context_length is None or length in (DASH, "< L") else f"{length} tokens"


def _reach(item: ArmFigures) -> float | None:
    """The multiple of L that is usable in every seed."""
    found = [row["usable_length_multiple"] for row in item.rows]
    lengths = [float(value) for value in found if isinstance(value, int | float)]
    return min(lengths) if len(lengths) == len(found) and found else None
