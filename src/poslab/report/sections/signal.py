"""Signal and noise: which figures can separate arms at the budget of a study."""

from poslab.analysis.results import Results
from poslab.analysis.sheets import Row, Rows
from poslab.analysis.signal import CHECKPOINTS, VALIDATION, signals
from poslab.report import cells
from poslab.report.document import Section, sheets_of
from poslab.report.formatting import number, quantity
from poslab.report.tables import Cell, Column, Table

TITLE = "Signal and noise"
TITLES = {VALIDATION: "Validation loss", "aulc": "Mean validation loss (AULC)"}


def section(results: Results) -> Section | None:
    """Return the table of figures with their signal and noise, or None with one arm or one seed."""
    found = signals(results)
    if all(signal.seeds is None for signal in found):
        return None
    table = _table(results, list(map(vars, found)))
    return Section("signal", TITLE, tables=(table,), sheets=sheets_of(table))


def _table(results: Results, rows: Rows) -> Table:
    def title(row: Row, key: str) -> Cell:
        figure = str(row[key])
        return Cell(TITLES.get(figure) or cells.figure_title(figure))

    def rung(row: Row, key: str) -> Cell:
        size, share = quantity(cells.figure(row, "parameters")), number(cells.figure(row, key), 2)
        return Cell(f"{size} parameters with {share} tokens each")

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
        Column("apart", "Separated", apart),
    ]
    reference = "the reference" if laddered else results.reference.arm.label
    text = ", which for losses by length include the noise of the text" if results.documents else ""
    caption = (
        "AULC: the mean validation loss over the logarithm of the training tokens. Range over arms: highest "
        "mean minus lowest. The SD over seeds is pooled over arms. The SD of the last "
        f"{CHECKPOINTS} validations is pooled over runs, and includes the remaining fall of the loss. Half "
        f"interval: the median of half the 95 % intervals of differences from {reference}{text}; much "
        f"smaller gaps cannot be decided. Separated: arms that differ from {reference} by paired t tests, "
        "with Holm's correction within a row."
    )
    return Table(TITLE, caption, tuple(columns), rows, ("signal.csv",), grouped=laddered)
