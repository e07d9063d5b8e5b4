"""How well a linear probe reads a token's position from the hidden state after each layer."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from poslab.measures import Measurement, Row, Trained
from poslab.measures.scheme_bias import inspected

if TYPE_CHECKING:
    from poslab.report.document import Section
    from poslab.report.study_tables import StudyTables


class PositionProbe(Measurement):
    # Sums over the tokens of the validation windows that the probe was not fitted on; positions in tokens.
    columns = "layer", "tokens", "squared_error", "squared_deviation"
    order = 45
    chapter = "what"

    def measure(self, trained: Trained) -> Iterable[Row]:
        return trained.once(inspected).position_probe

    def section(self, study: "StudyTables") -> "Section | None":
        """position_probe.csv: of each run and layer, the share of the position's variance that is read."""
        from poslab.analysis.sheets import sheet
        from poslab.measures.scheme_bias import scheme_section

        if (table := study.table(self)) is None:
            return None
        explained = table.assign(explained=1 - table.squared_error / table.squared_deviation)
        rows = study.records(explained[["arm", "run", "seed", "layer", "explained"]])
        return scheme_section(sheets={"position_probe": sheet(rows)})
