"""Wavelengths: the number of tokens in which each pair of the trained scheme turns once."""

import math
from collections.abc import Iterable

from poslab.analysis.sheets import Row as SheetRow
from poslab.measures import Measurement, Row, Trained
from poslab.measures.scheme_bias import inspected
from poslab.record.frames import DataFrame
from poslab.report.cells import fewer, figure, loss
from poslab.report.document import Section
from poslab.report.formatting import number
from poslab.report.study_tables import SCHEMES, StudyTables
from poslab.report.tables import Cell, Column


class Rotation(Measurement):
    columns = "layer", "pair", "wavelength"  # tokens per turn; empty if the pair does not turn
    order = 41
    chapter = "what"

    def measure(self, trained: Trained) -> Iterable[Row]:
        return trained.once(inspected).rotation

    def section(self, study: StudyTables) -> Section | None:
        if (pairs := study.table(self)) is None:
            return None
        return _view(study, pairs.replace(math.inf, math.nan))  # such a pair does not turn


def _figures(study: StudyTables, pairs: DataFrame) -> DataFrame:
    """Return a row of figures for each run with pairs, over all recorded layers."""
    lengths = {run.name: run.context_length for run in study.results.finished}
    longest = {
        run.name: run.context_length * max((k for _, k in run.segments), default=1.0)
        for run in study.results.finished
    }
    figures = pairs.groupby("run").wavelength.agg(pairs="size", turning="count", fastest="min", slowest="max")
    for name, limits in (("L", lengths), ("longest", longest)):
        slower = pairs.wavelength > pairs.run.map(limits)
        figures[f"under_a_turn_in_{name}"] = slower.groupby(pairs.run).sum()
    return figures


def _view(study: StudyTables, pairs: DataFrame) -> Section:
    """Return the section with a table, which has a row for each arm with rotations, and its CSV files."""
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
        "A pair of a query's or key's features turns once in as many tokens as its wavelength. A pair that "
        "turns less than once within the training length L never made a whole turn in training and meets new "
        "angles past L. The longest is the longest evaluated length."
        + (" Pairs are counted over all layers that have rotations of their own." if several else "")
    )
    by_arm = study.by_arm(_figures(study, pairs))
    by_pair = study.records(pairs[["arm", "run", "seed", "layer", "pair", "wavelength"]])
    names = "wavelengths", "wavelength_pairs"
    return study.view(SCHEMES, columns, by_arm, by_pair, names, "Wavelengths of the rotations", caption)


def _turns(row: SheetRow, key: str) -> Cell:
    value = figure(row, f"{key}_mean")
    if value is None or row[f"{key}_half_width"]:
        return loss(row, key)
    # Equal in every seed, so there is no interval, and a count is a whole number.
    return Cell((f"{value:g}" if value.is_integer() else number(value)) + fewer(row, key), value)
