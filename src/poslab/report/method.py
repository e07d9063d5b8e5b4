"""method.csv: the numbers that the report's words speak of and no study sets, from where they are set."""

from poslab.record.measures import (
    BINS_AN_OCTAVE,
    CONFIRMATIONS,
    MULTIPLES,
    PLATEAU_FROM,
    STRIDE,
    TOLERANCES,
    Value,
)
from poslab.report.analysis.comparisons import PRIMARY
from poslab.report.analysis.estimates import TARGETS
from poslab.report.analysis.statistics import CONFIDENCE, CONFIDENCE_OF_BOUND, EXPLORATORY, FALSE_ALARMS
from poslab.report.heat import SCALE_FROM
from poslab.report.notes import EXPECTED_VALIDATIONS
from poslab.report.panels import CEILING, START
from poslab.report.retrieval import BEFORE_QUESTION, EVERY_ANSWER, SYMBOLS, WINDOW_START
from poslab.report.retrieval_words import LEARNED
from poslab.report.scheme_charts import AN_OCTAVE, BOUND_OVER, BOUND_SOURCE, DEPTH
from poslab.report.schemes import COUNTED_FROM
from poslab.report.sheets import Rows
from poslab.report.tables import SMALLEST_P
from poslab.report.verdict import NAMED

COLUMNS = ["name", "value", "meaning"]


def method() -> tuple[list[str], Rows]:
    """method.csv: a row a constant; the same name again where there are several values."""
    found: list[tuple[str, Value, str]] = [
        ("confidence", CONFIDENCE, "of every Student-t interval over seeds"),
        ("confidence_of_bound", CONFIDENCE_OF_BOUND, "of a bound on time to target where runs were cut off"),
        ("false_alarms", FALSE_ALARMS, "p with Holm's correction under which arms are separated"),
        ("smallest_p", SMALLEST_P, "a smaller p is shown as less than this"),
        ("exploratory_below", EXPLORATORY, "seeds; fewer are called exploratory"),
        ("primary_multiple", PRIMARY, "of L: the longest whose loss is tested"),
        *(("multiple", k, "of L: always a column") for k in MULTIPLES),
        ("stride", STRIDE, "of L: how far sliding windows move, and how much of each is scored"),
        ("bins_an_octave", BINS_AN_OCTAVE, "of loss by position"),
        ("plateau_from", PLATEAU_FROM, "of L: where the plateau of the loss by position begins"),
        *(
            (f"tolerance{suffix}", part, "over the loss at L (usable length) or the plateau (failure, rise)")
            for suffix, part in TOLERANCES.items()
        ),
        *(("target_fraction", part, "of the reference's budget: its loss is a target") for part in TARGETS),
        ("confirmations", CONFIRMATIONS, "validations in a row at or below a target that reach it"),
        ("expected_validations", EXPECTED_VALIDATIONS, "a run; with fewer, a note says so"),
        ("named", NAMED, "arms in one list of the verdict; it counts the others"),
        ("position_panels_from", START, "of L: where loss by position under other rotations begins"),
        ("ceiling", CEILING, "of the highest plateau: where loss by position under other rotations ends"),
        *(("symbols", n, f"that an answer of {task} is drawn from") for task, n in SYMBOLS.items()),
        ("learned", LEARNED, "of all samples at L exact: with less, an arm has not learned the task"),
        ("depth_of_start", WINDOW_START, "of a retrieval probe: the start of the window"),
        ("depth_before_question", BEFORE_QUESTION, "of a retrieval probe: right before the question"),
        ("scale_from", SCALE_FROM, "where the scales of shaded tables and of tokens to target begin"),
        ("retrieval_scale_to", EVERY_ANSWER, "a share: where the scale of retrieval ends"),
        ("bias_depth", DEPTH, "nats under its highest bias where a head's line ends"),
        ("bias_points_an_octave", AN_OCTAVE, "of a line that are drawn, where there are more"),
        ("bound_over", BOUND_OVER, "tokens: the distance whose bound of decay the others are held against"),
        ("bound_source", BOUND_SOURCE, "defines the upper bound of decay"),
        ("counted_from", COUNTED_FROM, "the number of the first layer, head and pair"),
    ]
    return COLUMNS, [dict(zip(COLUMNS, row, strict=True)) for row in found]
