"""The CSV files of a study: its figures in full precision. Every table of a report is a view of them."""

from collections.abc import Iterable, Mapping

from poslab.analysis import estimates
from poslab.analysis.estimates import ArmFigures, estimate_columns, position_columns, usable_columns
from poslab.analysis.protocols import counterpart
from poslab.analysis.rescalings import FAMILIES
from poslab.analysis.results import Results
from poslab.analysis.statistics import Difference
from poslab.record.measures import Value, name

Row = Mapping[str, Value]  # a row of a CSV file, by column name
Rows = list[dict[str, Value]]
Sheet = tuple[list[str], Rows]  # a CSV file: its columns and rows

PRICE = f"loss_change_from_trained_{name(1)}"
POSITIONS = ("failure_position", "rise_position")


def sheet(rows: Iterable[Row]) -> Sheet:
    """Return a CSV file with all columns of its rows."""
    listed = [dict(row) for row in rows]
    return list(dict.fromkeys(key for row in listed for key in row)), listed


def arms_sheet(results: Results) -> Sheet:
    """Return arms.csv: a row per arm, with mean, half the 95 % interval and number of seeds by figure."""
    figures = [
        f"{family}_{name(k)}"
        for family in (*estimates.BY_LENGTH, *estimates.CHANGES)
        for k in results.multiples
    ]
    figures += [*estimates.SINGLE, *(f"tokens_to_target{suffix}" for suffix in estimates.TARGETS.values())]
    return sheet(
        {
            "study": item.arm.study,
            "arm": item.arm.label,
            "pos": item.arm.pos,
            "attention": item.arm.attention,
            "reference": item is results.reference,
            "context_length": item.arm.context_length,
            "parameters": item.rows[0]["parameters"] if item.rows else None,
            "seeds_asked": item.arm.seeds_started,
            "seeds_finished": len(item.rows),
            **estimate_columns(item.figures, figures),
            **usable_columns(item.rows),
            **usable_columns(item.rows, estimates.FIXED),
            **estimates.target_columns(item),
            "rank_best": None if (rank := results.ranks.get(item.arm.label)) is None else rank.best,
            "rank_worst": None if rank is None else rank.worst,
        }
        for item in results.arms
    )


def differences_sheet(results: Results) -> Sheet:
    """Return differences.csv: each arm less the reference, paired by seed, on each compared figure."""
    columns = ["arm", "reference", "figure", "primary", "n", "mean", "half_width", "p", "p_holm"]
    columns += ["seed_deviations", "text_standard_error", "normality_p", "reading"]
    known = any(item.difference.documents for item in results.comparisons)
    columns += ["documents"] if known else []
    rows: Rows = [
        {
            "arm": item.arm.label,
            "reference": results.reference.arm.label,
            "figure": item.figure,
            "primary": item.figure == results.primary,
            **_paired(item.difference),
            # A p beside figures that are not tested would invite a hunt for a small one.
            "p": None if item.p_holm is None else item.difference.p,
            "seed_deviations": item.difference.deviations,
            "p_holm": item.p_holm,
            "text_standard_error": item.text_standard_error,
            "normality_p": item.normality_p,
            "reading": item.reading,
            **({"documents": item.difference.documents} if known else {}),
        }
        for item in results.comparisons
    ]
    return columns, rows


def interactions_sheet(results: Results) -> Sheet:
    """Return interactions.csv: how the difference of two schemes changes with the other settings."""
    return sheet(
        flat(item) | {"figure": results.primary, "documents": item.change.documents}
        for item in results.interactions
    )


def pairs_sheet(results: Results) -> Sheet:
    """Return pairs.csv: an arm less another, paired by seed, on the primary figure; ranks follow from it.

    It also has the same two arms' difference in the other protocol, and whether they change places.
    """
    columns = ["arm", "other", "figure", "n", "mean", "half_width", "p", "p_holm", "separated"]
    columns += [f"counterpart{end}" for end in ("", "_n", "_mean", "_half_width")]
    columns += ["change_p_holm", "changes_places"]
    rows: Rows = [
        {
            "arm": pair.arm.label,
            "other": pair.against.label,
            "figure": pair.figure,
            **_paired(pair.difference),
            "p": pair.difference.p,
            "p_holm": pair.p_holm,
            "separated": pair.separated,
            "counterpart": None if pair.beside is None else counterpart(pair.figure),
            **difference_columns("counterpart", pair.beside),
            "change_p_holm": pair.change_p_holm,
            "changes_places": None if pair.beside is None else pair.changes_places,
        }
        for pair in results.pairs
    ]
    return columns, rows


def _paired(between: Difference) -> Row:
    return {end: getattr(between, end) for end in estimates.ESTIMATE}


def flat(item: object) -> dict[str, Value]:
    """Return a dataclass's fields that fit into cells: an arm as its label, a difference as three cells."""
    row: dict[str, Value] = {}
    for field, value in vars(item).items():
        if isinstance(value, Difference):
            row |= difference_columns(field, value)
        elif isinstance(value, ArmFigures):
            row[field] = value.arm.label
        elif isinstance(value, int | float | str):
            row[field] = value
    return row


def difference_columns(name: str, between: Difference | None) -> dict[str, Value]:
    """Return the cells of a paired difference, in columns that start with `name`; for None they are empty."""
    return {f"{name}_{end}": getattr(between, end, None) for end in estimates.ESTIMATE}


def claims_sheet(results: Results) -> Sheet:
    """Return claims.csv: a row per test behind the verdict, with its share of the family's false alarms."""
    columns = ["part", "figure", "arm", "other", "n", "p", "weight", "p_holm", "claimed"]
    every = [{**vars(test), "other": test.against, "claimed": test.holds} for test in results.claims]
    return columns, [{key: row[key] for key in columns} for row in every]


def summary_sheet(results: Results) -> Sheet:
    """Return summary.csv: a row per run. Undefined figures and those of runs that do not count are empty."""
    return sheet(results.rows)


def rescaled_sheet(results: Results) -> Sheet:
    """Return rescaled.csv: a row per run and rotation, including as trained, with the figures of summary.csv.

    Usable length and failure position are measured against the run as trained. So is
    `loss_change_from_trained`, the change from its loss at L.
    """
    return sheet(row for _, lines in results.rescaled for line in lines for row in line.rows)


def rescaled_arms_sheet(results: Results) -> Sheet:
    """Return rescaled_arms.csv: a row per arm and rotation, over the seeds as in arms.csv."""
    figures = [f"{family}_{name(k)}" for family in FAMILIES for k in results.multiples] + ["plateau"]
    shared = ("study", "arm", "pos", "attention", "context_length", "rescale", "line")
    return sheet(
        {key: line.rows[0][key] for key in shared}
        | {"seeds_finished": len(line.rows)}
        | estimate_columns(line.figures, figures)
        | reach_columns(line)
        for _, lines in results.rescaled
        for line in lines
    )


def reach_columns(item: ArmFigures) -> dict[str, Value]:
    """Return the columns of a line's usable lengths, its cost at L, and its failure and rise positions."""
    row = usable_columns(item.rows) | estimate_columns(item.figures, [PRICE])
    for key in POSITIONS:
        row |= position_columns(item.rows, key)
    return row


def rates_sheet(results: Results) -> Sheet:
    """Return rates.csv: a row per arm and pair of rates. The loss is empty unless every seed has one."""
    no_loss = dict.fromkeys(("mean", "half_width", "lowest", "highest"))
    return sheet(
        {
            "study": tuning.runs[0].study,
            "arm": tuning.label,
            **tried.rates._asdict(),
            "seeds": tried.seeds_started,
            "n": len(tried.losses),
            "diverged": tried.without.count("diverged"),
            "without_loss": len(tried.without),
            **(no_loss if tried.estimate is None else tried.estimate.row),
            "chosen": tried is tuning.chosen,
            "edge": tried is tuning.chosen and tuning.choice is not None and bool(tuning.choice.edges),
            "compared": tried.rates in tuning.used,
        }
        for tuning in results.tunings
        for tried in tuning.tried
    )
