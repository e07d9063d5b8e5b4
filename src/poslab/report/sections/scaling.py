"""A ladder of four or more sizes: the tokens and parameters each arm needs relative to the reference."""

from poslab.analysis.ladder import Ladder
from poslab.analysis.results import Results
from poslab.analysis.scaling import MISFIT, WIDEST, Scaling, scaling
from poslab.analysis.sheets import Row
from poslab.config.text import listing
from poslab.record.measures import Value, unit
from poslab.report import cells
from poslab.report.document import Section, sheets_of
from poslab.report.formatting import DASH, number
from poslab.report.tables import Cell, Column, Table
from poslab.report.verdict import NAMED

TITLE = "Tokens and parameters for the same loss"
LAW = {"floor": "E", "alpha": "α", "beta": "β", "residual": "Residual"}


def section(results: Results) -> Section | None:
    """Return the table of fits, or None without four sizes and two values of tokens per parameter."""
    if (rungs := results.rungs) is None:
        return None
    figure = rungs.figures[0]
    found = [fit for arm in rungs.compared if (fit := scaling(rungs, arm, figure)) is not None]
    if not found:
        return None
    table = _table(rungs, figure, list(map(_row, found)), cells.chance(results))
    findings = (_finding(rungs, found),)
    return Section("scaling", TITLE, findings=findings, tables=(table,), sheets=sheets_of(table))


def _finding(rungs: Ladder, found: list[Scaling]) -> str:
    """Return a sentence on the arms that need fewer or more tokens or parameters than the reference."""
    unfit = [fit.arm for fit in found if not fit.fits]
    seen = [
        f"{fit.arm} needs {need.reading} {kind} ({_range(need.factor, need.low, need.high)})"
        for fit in found
        for kind, need in (("tokens", fit.tokens), ("parameters", fit.parameters))
        if fit.fits and need.reading != "cannot tell"
    ]
    sizes = sorted(len({rung.parameters for rung in rungs.rungs if fit.arm in rung.arms}) for fit in found)
    over = f"over {cells.span(sizes)} sizes"
    if len(unfit) == len(found):
        return f"The law fits no arm {over}, so what each needs for the same loss is unknown."
    text = f"For the same loss {over}"
    but = f"; the law does not fit {listing(unfit, NAMED)}" if unfit else ""
    if not seen:
        return (
            f"{text}, the fits cannot tell whether an arm needs more or fewer tokens or parameters than "
            f"{rungs.reference}{but}."
        )
    return f"{text}, relative to {rungs.reference}: {listing(seen, NAMED)}{but}."


def _row(fit: Scaling) -> dict[str, Value]:
    """Return the row of one arm in scaling.csv; of a law that does not fit, it has only the residual."""
    row: dict[str, Value] = {}
    for name, need in (("tokens", fit.tokens), ("parameters", fit.parameters)):
        row |= {name: need.factor, f"{name}_low": need.low, f"{name}_high": need.high}
        row[f"{name}_reading"] = need.reading
    row |= {"floor": fit.floor, "alpha": fit.alpha, "beta": fit.beta}
    if not fit.fits:
        row = {key: "the law does not fit" if key.endswith("_reading") else None for key in row}
    return {"arm": fit.arm, **row, "residual": fit.residual}


def _range(factor: float | None, low: float | None, high: float | None) -> str:
    if factor is None:  # at a bound of the search
        return f"at least ×{number(low, 3)}" if low is not None else f"at most ×{number(high, 3)}"
    ends = ("open" if end is None else number(end, 3) for end in (low, high))
    return f"×{number(factor, 3)} [{', '.join(ends)}]"


def _table(rungs: Ladder, figure: str, rows: list[dict[str, Value]], chance: str) -> Table:
    def share(row: Row, key: str) -> Cell:
        factor, *ends = (cells.figure(row, f"{key}{end}") for end in ("", "_low", "_high"))
        known = factor is not None or any(end is not None for end in ends)
        return Cell(_range(factor, *ends) if known else DASH, factor)

    columns = (
        cells.words("arm", "Arm"),
        *(
            column
            for key, group in (("tokens", "Tokens"), ("parameters", "Parameters"))
            for column in (
                Column(key, "Needed", share, group),
                Column(f"{key}_reading", "Reading", cells.text, group, number=False),
            )
        ),
        *(Column(key, title, cells.significant(3), "Law") for key, title in LAW.items()),
    )
    reference = rungs.reference
    caption = (
        f"How many times the tokens or parameters of {reference} an arm needs for the same loss. The law "
        f"E + A (k N)^−α + B (k D)^−β is fitted to the losses of an arm and {reference} "
        f"{cells.figure_place(figure)}, with N parameters, D tokens and k = 1 for {reference}; needed is "
        f"1 / k. In brackets: 95 % profile intervals over {chance}, open past a factor of "
        f"{number(WIDEST, 2)}, not corrected for their number. Residual: root mean square, in "
        f"{unit(figure)}; the law does not fit if noise leaves as much in fewer than {100 * MISFIT:g} % of "
        "studies (F test), and then has no parameters here. Other dashes: at a bound of the search. The "
        "fit holds only for these sizes and budgets."
    )
    return Table(TITLE, caption, columns, rows, ("scaling.csv",))
