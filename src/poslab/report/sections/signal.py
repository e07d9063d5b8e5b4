"""Signal and noise: which figures can tell arms apart at the budget of a study."""

from poslab.analysis.results import Results
from poslab.analysis.sheets import Row, Rows
from poslab.analysis.signal import CHECKPOINTS, VALIDATION, Signal, signals
from poslab.config.text import listing
from poslab.report import cells
from poslab.report.document import Section, sheets_of
from poslab.report.formatting import number, quantity
from poslab.report.tables import Cell, Column, Table

TITLE = "Signal and noise"
TITLES = {VALIDATION: "Validation loss", "aulc": "AULC"}


def section(results: Results) -> Section | None:
    """Return the table of figures with their signal and noise; None of one arm."""
    found = signals(results)
    if not found:
        return None
    table = _table(results, list(map(vars, found)))
    return Section("signal", TITLE, findings=_findings(found), tables=(table,), sheets=sheets_of(table))


def _findings(found: tuple[Signal, ...]) -> tuple[str, ...]:
    """Return which figures tell an arm from the reference, and which none, of those with two seeds."""
    decided: dict[str, list[bool]] = {}
    for one in found:
        if one.compared:
            decided.setdefault(_title(one.figure), []).append(one.decides)
    if not decided:
        unknown = "No test over two seeds or more: how far seeds differ is not known"
        return (f"{unknown}, so no figure is said to decide.",)
    always = listing([figure for figure, each in decided.items() if all(each)])
    never = listing([figure for figure, each in decided.items() if not any(each)])
    told = ("an arm", always), ("no arm", never)
    parts = [f"{arm} is told apart from the reference in {figures}" for arm, figures in told if figures]
    where = "At this budget"
    if found[0].share is not None:
        single = any(not one.compared for one in found)
        where = f"At every size and budget{' with two seeds or more' if single else ''}"
    return (f"{where}, each figure tested by itself, {'; '.join(parts)}.",) if parts else ()


def _title(figure: str) -> str:
    return (
        TITLES[figure].replace("Validation", "validation") if figure in TITLES else cells.figure_words(figure)
    )


def _table(results: Results, rows: Rows) -> Table:
    def title(row: Row, key: str) -> Cell:
        figure = str(row[key])
        return Cell(TITLES.get(figure) or cells.figure_title(figure))

    def rung(row: Row, key: str) -> Cell:
        size, share = quantity(cells.figure(row, "parameters")), number(cells.figure(row, key), 2)
        return Cell(f"{size}, {share} tokens a parameter")

    def apart(row: Row, key: str) -> Cell:
        return Cell(
            f"{row['apart']} of {row['compared']}" if row["compared"] else "–", cells.figure(row, key)
        )

    nats, ratio = cells.significant(3), cells.significant(2)
    laddered = rows[0]["share"] is not None
    columns = [
        *([Column("share", "Size and budget", rung, number=False)] if laddered else []),
        Column("figure", "Figure", title, number=False),
        Column("spread", "Range over arms", nats),
        Column("seeds", "SD", nats, "Seeds"),
        Column("over_seeds", "Signal / noise", ratio, "Seeds"),
        Column("checkpoints", "SD", nats, "Last checkpoints"),
        Column("over_checkpoints", "Signal / noise", ratio, "Last checkpoints"),
        Column("half_width", "Half interval", nats),
        Column("apart", "Told apart", apart),
    ]
    reference = "the reference" if laddered else results.reference.arm.label
    caption = (
        "Range over arms: highest mean less lowest. SD over seeds is pooled over arms; that over the last "
        f"{CHECKPOINTS} validations, with what they still fall, over runs. Half interval: the median of half "
        f"the 95 % intervals of differences from {reference}, which hold the noise of the text, too; much "
        f"smaller gaps cannot be decided. Told apart: arms that differ from {reference} by paired t tests, "
        "with Holm's correction within a row."
    )
    return Table(TITLE, caption, tuple(columns), rows, ("signal.csv",), grouped=laddered)
