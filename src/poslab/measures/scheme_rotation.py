"""In how many tokens each pair of the trained scheme turns once."""

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from poslab.analysis.sheets import Row as SheetRow
from poslab.analysis.sheets import Sheet
from poslab.measures import Measurement, Row, Trained
from poslab.measures.scheme_bias import inspected
from poslab.report.cells import fewer, figure, loss
from poslab.report.document import Section
from poslab.report.formatting import number
from poslab.report.study_tables import SCHEMES, StudyTables
from poslab.report.tables import Cell, Column, Table

if TYPE_CHECKING:
    import pandas


class Rotation(Measurement):
    columns = "layer", "pair", "wavelength"  # in tokens a turn; empty where the pair does not turn
    order = 41
    chapter = "what"

    def measure(self, trained: Trained) -> Iterable[Row]:
        return trained.once(inspected).rotation

    def section(self, study: StudyTables) -> Section:
        findings = study.not_on_record(self, "rotations")
        if (pairs := study.table(self)) is None:
            return replace(SCHEMES, findings=findings)
        pairs = pairs.replace(math.inf, math.nan)  # one turn in endlessly many tokens is no turn
        tables, sheets = _view(study, pairs)
        return replace(SCHEMES, findings=findings, tables=tables, sheets=sheets)


def _figures(study: StudyTables, pairs: "pandas.DataFrame") -> "pandas.DataFrame":
    """Return a row per run with pairs, over all layers on record."""
    import pandas

    figures: dict[str, dict[str, Any]] = {}
    for run in study.results.finished:
        wavelengths = pairs[pairs.run == run.name].wavelength
        longest = run.context_length * max((k for _, k in run.segments), default=1.0)
        if len(wavelengths):
            figures[run.name] = {
                "pairs": len(wavelengths),
                "turning": wavelengths.count(),
                "fastest": wavelengths.min(),
                "slowest": wavelengths.max(),
                "under_a_turn_in_L": (wavelengths > run.context_length).sum(),
                "under_a_turn_in_longest": (wavelengths > longest).sum(),
            }
    return pandas.DataFrame.from_dict(figures, orient="index")


def _view(study: StudyTables, pairs: "pandas.DataFrame") -> tuple[tuple[Table], dict[str, Sheet]]:
    """Return a table with a row per arm that turns, and its CSV files."""
    columns = (
        Column("pairs", "Pairs", _turns),
        Column("turning", "that turn", _turns),
        Column("fastest", "fastest", _turns, "Tokens to a turn"),
        Column("slowest", "slowest", _turns, "Tokens to a turn"),
        Column("under_a_turn_in_L", "within L", _turns, "Pairs that turn less than once"),
        Column("under_a_turn_in_longest", "within the longest", _turns, "Pairs that turn less than once"),
    )
    several = (pairs.groupby("run").layer.nunique() > 1).any()
    caption = (
        "A pair of a query's or key's features turns once in as many tokens as its wavelength. One that "
        "turns less than once within the training length L was never seen through a whole turn and meets new "
        "angles past L; the longest is the longest length evaluated."
        + (" Pairs are counted over all layers that have rotations of their own." if several else "")
    )
    by_arm = study.by_arm(_figures(study, pairs))
    by_pair = study.records(pairs[["arm", "run", "seed", "layer", "pair", "wavelength"]])
    names = "wavelengths", "wavelength_pairs"
    return study.view("Wavelengths of the rotations", caption, columns, by_arm, by_pair, *names)


def _turns(row: SheetRow, key: str) -> Cell:
    value = figure(row, f"{key}_mean")
    if value is None or row[f"{key}_half_width"]:
        return loss(row, key)
    # The same in every seed: no interval, and a count is whole.
    return Cell((f"{value:g}" if value.is_integer() else number(value)) + fewer(row, key), value)
