"""The CSV files, in full precision: a cell for every number that the report prints."""

from collections.abc import Iterable, Mapping

from poslab.record.measures import TOLERANCES, Value, name
from poslab.report.analysis.estimates import BY_LENGTH, SINGLE, TARGETS, ArmFigures
from poslab.report.analysis.rescalings import FAMILIES
from poslab.report.analysis.results import Results
from poslab.report.analysis.statistics import Estimate

Rows = list[dict[str, Value]]

RATIO = ("_n", "", "_low", "_high", "_kind")  # of the times to a target: how sure its kind says
REACH = [f"usable_length{suffix}{end}" for suffix in TOLERANCES for end in ("", "_multiple", "_at_least")]
REACH += [f"failure_position{suffix}{end}" for suffix in TOLERANCES for end in ("", "_found")]
REACH += ["plateau"]


def summary(results: Results) -> tuple[list[str], Rows]:
    """summary.csv: a row a run. Figures are empty where not defined and for runs that do not count."""
    columns = ["study", "run", "pos", "attention", "arm", "seed", "status", "reason", "context_length"]
    columns += ["part", "tuning_of", "learning_rate", "parameters", "tokens", "budget"]
    columns += [f"{family}_{name(k)}" for family in BY_LENGTH for k in results.multiples]
    columns += [f"loss_change_{name(k)}" for k in results.multiples]
    columns += REACH
    for suffix in ("", "_50", "_90"):
        columns += [f"tokens_to_target{suffix}", f"reached{suffix}", f"tokens_without_target{suffix}"]
    columns += ["steps_to_target", "seconds_to_target", "flops_to_target", "aulc", "aulc_from", "aulc_to"]
    columns += ["validation_loss"]
    columns += ["tokens_per_second", "seconds", "seconds_validation", "seconds_evaluation", "flops"]
    columns += ["kernel", "precision", "device", "code", "data", "data_fingerprint", "vocabulary"]
    columns += ["started", "finished"]
    return columns, [_csv(row) for row in results.rows]


def arms(results: Results) -> tuple[list[str], Rows]:
    """arms.csv: a row an arm; of every figure the mean, half its 95 % interval and the seeds that have it."""
    figures = [f"{family}_{name(k)}" for family in (*BY_LENGTH, "loss_change") for k in results.multiples]
    figures += [*SINGLE, *(f"tokens_to_target{suffix}" for suffix in TARGETS.values())]
    columns = ["study", "arm", "pos", "attention", "reference", "context_length", "parameters"]
    columns += ["seeds_asked", "seeds_finished"]
    columns += [f"{figure}_{end}" for figure in figures for end in ("n", "mean", "half_width")]
    columns += [f"usable_length_{end}" for end in ("min", "max", "min_at_least", "max_at_least")]
    columns += [f"usable_length_multiple_{end}" for end in ("min", "max")]
    for suffix in TARGETS.values():
        columns += [f"reached{suffix}", f"reached{suffix}_of"]
    for suffix in TARGETS.values():
        columns += [f"tokens_to_target{suffix}_ratio{end}" for end in RATIO]
    columns += ["rank_best", "rank_worst"]
    rows: Rows = []
    for item in results.arms:
        row: dict[str, Value] = {
            "study": item.arm.study,
            "arm": item.arm.label,
            "pos": item.arm.pos,
            "attention": item.arm.attention,
            "reference": item is results.reference,
            "context_length": item.arm.context_length,
            "parameters": item.rows[0]["parameters"] if item.rows else None,
            "seeds_asked": item.arm.asked,
            "seeds_finished": len(item.rows),
        }
        row |= _estimates(item, figures) | _usable(item.rows)
        for suffix, (hits, n) in item.reached.items():
            row |= {f"reached{suffix}": hits, f"reached{suffix}_of": n}
        for suffix, found in item.ratios.items():
            values = (found.n, found.mean, found.low, found.high, found.kind)
            row |= {f"tokens_to_target{suffix}_ratio{e}": v for e, v in zip(RATIO, values, strict=True)}
        rank = results.ranks.get(item.arm.label)
        if rank is not None:
            row |= {"rank_best": rank.best, "rank_worst": rank.worst}
        rows.append(_csv(row))
    return columns, rows


def _estimates(item: ArmFigures, figures: Iterable[str]) -> dict[str, Value]:
    row: dict[str, Value] = {}
    for figure in figures:
        row |= estimate_columns(figure, item.figures.get(figure))
    return row


def estimate_columns(name: str, found: Estimate | None) -> dict[str, Value]:
    """The three cells of a figure over the seeds."""
    if found is None:
        return {f"{name}_n": 0, f"{name}_mean": None, f"{name}_half_width": None}
    return {f"{name}_n": found.n, f"{name}_mean": found.mean, f"{name}_half_width": found.half_width}


def _usable(rows: Iterable[Mapping[str, Value]]) -> dict[str, Value]:
    found = sorted(
        (value, row["usable_length_multiple"], row["usable_length_at_least"] is True)
        for row in rows
        if isinstance(value := row.get("usable_length"), int)
    )
    if not found:
        return {}
    low, high = found[0], found[-1]
    return {
        "usable_length_min": low[0],
        "usable_length_max": high[0],
        "usable_length_min_at_least": low[2],
        "usable_length_max_at_least": high[2],
        "usable_length_multiple_min": low[1],
        "usable_length_multiple_max": high[1],
    }


def rescaled(results: Results) -> tuple[list[str], Rows]:
    """rescaled.csv: a row a run and rotation, as trained among them; the figures are those of summary.csv.

    Usable length and failure position are held against the run as trained, and so is
    `loss_change_from_trained`, over its loss at L.
    """
    columns = ["study", "run", "pos", "attention", "arm", "seed", "context_length", "rescale", "line"]
    columns += [f"{family}_{name(k)}" for family in FAMILIES for k in results.multiples]
    columns += [*REACH, *(f"rise_position{suffix}{end}" for suffix in TOLERANCES for end in ("", "_found"))]
    rows = [row for one in results.rescaled for line in one.lines for row in line.item.rows]
    return columns, [_csv(row) for row in rows]


def rescaled_arms(results: Results) -> tuple[list[str], Rows]:
    """rescaled_arms.csv: a row an arm and rotation, over the seeds as in arms.csv."""
    figures = [f"{family}_{name(k)}" for family in FAMILIES for k in results.multiples] + ["plateau"]
    columns = ["study", "arm", "pos", "attention", "context_length", "rescale", "line", "seeds_finished"]
    columns += [f"{figure}_{end}" for figure in figures for end in ("n", "mean", "half_width")]
    columns += [f"usable_length_{end}" for end in ("min", "max", "min_at_least", "max_at_least")]
    columns += [f"usable_length_multiple_{end}" for end in ("min", "max")]
    ends = ("min", "max", "found", "of")
    positions = ("failure_position", "rise_position")
    columns += [f"{key}_{end}" for key in positions for end in ends]
    rows: Rows = []
    for line in (line for one in results.rescaled for line in one.lines):
        first = line.item.rows[0]
        row: dict[str, Value] = {key: first[key] for key in columns[:7]}
        row["seeds_finished"] = len(line.item.rows)
        row |= _estimates(line.item, figures) | _usable(line.item.rows)
        for key in positions:
            row |= _failed(line.item.rows, key)
        rows.append(_csv(row))
    return columns, rows


def _failed(rows: Iterable[Mapping[str, Value]], key: str) -> dict[str, Value]:
    asked = [row for row in rows if row[f"{key}_found"] is not None]
    found = [value for row in asked if isinstance(value := row[key], int)]
    return {
        f"{key}_min": min(found, default=None),
        f"{key}_max": max(found, default=None),
        f"{key}_found": len(found),
        f"{key}_of": len(asked),
    }


def differences(results: Results) -> tuple[list[str], Rows]:
    """differences.csv: an arm less the reference, paired by seed, on each figure that is compared."""
    columns = ["arm", "reference", "figure", "primary", "n", "mean", "half_width", "p", "p_holm"]
    columns += ["seed_deviations", "reading"]
    rows: Rows = [
        {
            "arm": item.arm.label,
            "reference": results.reference.arm.label,
            "figure": item.figure,
            "primary": item.figure == results.primary,
            "n": item.difference.n,
            "mean": item.difference.mean,
            "half_width": item.difference.half_width,
            # One figure is tested; a p beside each of the others would be a hunt for a small one.
            "p": item.difference.p if item.figure == results.primary else None,
            "p_holm": item.p_holm,
            "seed_deviations": item.difference.deviations,
            "reading": item.reading,
        }
        for item in results.comparisons
    ]
    return columns, [_csv(row) for row in rows]


def pairs(results: Results) -> tuple[list[str], Rows]:
    """pairs.csv: an arm less another, paired by seed, on the primary figure; what the ranks are made of."""
    columns = ["arm", "other", "figure", "n", "mean", "half_width", "p", "p_holm", "separated"]
    rows: Rows = [
        {
            "arm": pair.arm.label,
            "other": pair.other.label,
            "figure": results.primary,
            "n": pair.difference.n,
            "mean": pair.difference.mean,
            "half_width": pair.difference.half_width,
            "p": pair.difference.p,
            "p_holm": pair.p_holm,
            "separated": pair.separated,
        }
        for pair in results.pairs
    ]
    return columns, [_csv(row) for row in rows]


def figure(rows: Iterable[Mapping[str, Value]]) -> tuple[list[str], Rows]:
    """The CSV beside a figure: its columns are those of its rows."""
    kept = [_csv(row) for row in rows]
    return list(dict.fromkeys(key for row in kept for key in row)), kept


def _csv(row: Mapping[str, Value]) -> dict[str, Value]:
    return {key: str(value).lower() if isinstance(value, bool) else value for key, value in row.items()}
