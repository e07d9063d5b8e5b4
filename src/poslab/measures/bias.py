"""What the trained scheme adds to a logit, by layer, head and distance."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from poslab.config.schema import longest_length
from poslab.config.text import listing
from poslab.measures import Measurement, Row, Trained
from poslab.record.schema import SCHEME_BIAS

if TYPE_CHECKING:
    from poslab.analysis.sheets import Sheet
    from poslab.evaluation.inspection import Inspection
    from poslab.report.charts import Chart
    from poslab.report.document import Section
    from poslab.report.study_tables import StudyTables
    from poslab.report.tables import Table


class Bias(Measurement):
    table = SCHEME_BIAS
    order = 40
    family = "scheme"

    def measure(self, trained: Trained) -> Iterable[Row]:
        return trained.once(inspected).bias


def inspected(trained: Trained) -> "Inspection":
    """What a pass over the validation windows shows of the trained scheme and its attention."""
    from poslab.data.windows import validation_windows
    from poslab.evaluation.inspection import inspect

    config = trained.config
    windows = validation_windows(trained.corpus, config.evaluate.validation_windows, config.context_length)
    return inspect(trained.gpt, windows, longest_length(config))


def scheme_section(
    findings: tuple[str, ...] = (),
    charts: "tuple[Chart, ...]" = (),
    tables: "tuple[Table, ...]" = (),
    sheets: "Mapping[str, Sheet] | None" = None,
) -> "Section":
    """The section that all measurements of trained schemes share, with what one of them shows."""
    from poslab.report.document import Section

    return Section(
        "schemes",
        "What the schemes do",
        "Read from the trained models: what each scheme adds to the logits, how it turns queries and keys, "
        "and how far back attention then reaches. Layers and heads are counted from 0.",
        findings,
        charts,
        tables,
        sheets or {},
    )


def not_on_record(study: "StudyTables", measurement: Measurement, what: str) -> tuple[str, ...]:
    """A sentence on the arms of which a finished run lacks the table of the measurement, if there are any."""
    lacking = [
        item.arm.label
        for item in study.results.arms
        if any(measurement.table.file not in run.tables for run in item.arm.finished)
    ]
    return (f"Of some runs, no {what} on record: {listing(lacking)}.",) if lacking else ()
