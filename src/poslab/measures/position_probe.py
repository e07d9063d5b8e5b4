"""Position probe: how well a linear probe reads a token's position from the hidden state after each layer."""

from collections.abc import Iterable
from dataclasses import replace

from poslab.analysis.sheets import sheet
from poslab.measures import Measurement, Row, Trained
from poslab.record.schema import TableSchema
from poslab.report.cells import percent
from poslab.report.document import Section
from poslab.report.study_tables import SCHEMES, StudyTables
from poslab.report.tables import Column


class PositionProbe(Measurement):
    # Sums over the tokens of windows to which the probe was not fitted; positions are in tokens.
    table = TableSchema(
        "position_probe.csv",
        ("layer", "tokens", "squared_error", "squared_deviation"),
        # Older probes were fitted by least squares to half of the validation windows, without a control.
        ("fitted_windows", "penalty", "shuffled_error"),
    )
    order = 45
    chapter = "what"

    def measure(self, trained: Trained) -> Iterable[Row]:
        from poslab.data.windows import validation_windows
        from poslab.evaluation.position_probe import WINDOWS, read_positions

        windows = validation_windows(trained.corpus, WINDOWS, trained.config.context_length)
        with trained.progress.phase("reading positions"):
            return read_positions(trained.gpt, windows)

    def section(self, study: StudyTables) -> Section | None:
        """Return each arm's explained share of the position's variance, in the layer where it is largest.

        Older probes, without a control, are only in position_probe.csv.
        """
        if (table := study.table(self)) is None:
            return None
        table["explained"] = 1 - table.squared_error / table.squared_deviation
        table["shuffled"] = 1 - table.shuffled_error / table.squared_deviation
        by_layer = study.records(
            table[["arm", "run", "seed", "layer", "fitted_windows", "explained", "shuffled"]]
        )
        controlled = table[table.shuffled.notna()]
        if controlled.empty:
            return replace(SCHEMES, sheets={"position_probe": sheet(by_layer)})
        by_arm = study.by_arm(controlled.groupby("run")[["explained", "shuffled"]].max())
        columns = (
            Column("explained", "Position", percent, "Percent of the variance"),
            Column("shuffled", "Shuffled", percent, "Percent of the variance"),
        )
        caption = (
            "How much of a token's position in its window ridge regression reads from hidden states, in the "
            "best layer, and how much of shuffled positions, where there is nothing to read."
        )
        names = "position_probe_arms", "position_probe"
        return study.view(SCHEMES, columns, by_arm, by_layer, names, "Position in hidden states", caption)
