"""Training curves: validation loss by tokens, tokens to target, and how often an arm is the fastest."""

from dataclasses import replace
from typing import Any

from poslab.analysis.curves import by_cost, points, validation_losses
from poslab.analysis.estimates import estimate_columns, target_columns
from poslab.analysis.profile import profile
from poslab.analysis.results import Results
from poslab.analysis.statistics import grouped
from poslab.record.facts import SHARED_STEPS
from poslab.report.cells import bars, lines, to_target
from poslab.report.charts import Chart, LineChart, Track, TrackChart, decades
from poslab.report.document import Section
from poslab.report.formatting import quantity
from poslab.report.sections.cost import unsteady


def section(results: Results) -> Section:
    """Return the charts of validation loss, performance profile and tokens to target that have data."""
    losses = validation_chart(results)
    charts: list[Chart] = [] if losses is None or results.is_about_learning else [losses]
    charts += [] if losses is None else _by_cost(results, losses)
    charts += [*performance_profile(results), *target_charts(results)]
    findings = (words,) if (words := unsteady(results)) else ()
    return Section("convergence", "Loss during training", findings=findings, charts=tuple(charts))


def validation_chart(results: Results) -> LineChart | None:
    """Return validation loss by training tokens: the first figure if nothing past L is tested."""
    series = lines(results, lambda item: points(map(validation_losses, item.arm.finished)))
    if not series:
        return None
    return LineChart(
        "validation_loss",
        "Validation loss by training tokens",
        f"Validation loss during training.{_branched(results)} {bars(results)}",
        "Training tokens",
        "Validation loss (nats per token)",
        series,
        decades(series),
        base=10,
    )


def _branched(results: Results) -> str:
    """Return a sentence on the runs that share the first steps and validations of a shorter run."""
    notes = (note for run in results.finished for note in run.manifest.notes or ())
    if not (shared := sum(note.startswith(SHARED_STEPS) for note in notes)):
        return ""
    begin = "run begins" if shared == 1 else "runs begin"
    return f" {shared} {begin} with the steps and validations of a shorter run (branches=true)."


def _by_cost(results: Results, losses: LineChart) -> list[LineChart]:
    """Return the losses by training time and by operations, if arms differ in cost per token."""
    timed = "Times are comparable only between runs that had their part of the machine to themselves."
    counted = "Operations are calculated from the sizes of the model, not measured."
    charts = []
    for figure, cost_name, label, warning in (
        ("seconds", "training time", "Seconds of training", timed),
        ("flops", "training compute", "Floating-point operations", counted),
    ):
        if figure == "seconds" and unsteady(results):
            continue
        costs = {
            item.arm.label: cost for item in results.arms if (cost := item.per_token(figure)) is not None
        }
        if not costs or max(costs.values()) < 1.001 * min(costs.values()):
            continue
        series = tuple(
            replace(line, points=by_cost(line.points, costs[line.label], figure))
            for line in losses.series
            if line.label in costs
        )
        chart = replace(
            losses,
            name=f"validation_loss_by_{figure}",
            title=f"Validation loss by {cost_name}",
            caption=f"Validation loss by {cost_name}: tokens times the arm's mean cost per token. {warning}",
            x_label=label,
            ticks=decades(series),
            series=series,
        )
        charts += [chart] if series else []
    return charts


def target_charts(results: Results) -> list[TrackChart]:
    """Return tokens to target for every finished run, or an empty list without targets."""
    columns = {target: f"tokens_to_target{target.suffix}" for target in results.targets}
    rows: list[dict[str, Any]] = [
        {
            "arm": item.arm.label,
            "seed": run.seed,
            "target_fraction": target.fraction,
            "target_loss": target.loss,
            "reached": row[column] is not None,
            "tokens_to_target": row[column],
            "budget": run.budget,
        }
        for item in results.arms
        for target, column in columns.items()
        for run, row in zip(item.arm.finished, item.rows, strict=True)
        if column in row
    ]
    of_arms = grouped((row["arm"], row) for row in rows)
    if not rows:
        return []
    tracks = []
    for item in (item for item in results.arms if item.arm.label in of_arms):
        of_arm = of_arms[item.arm.label]
        marks = tuple((f"{100 * row['target_fraction']:g}", row["tokens_to_target"]) for row in of_arm)
        columns_of_arm = target_columns(item) | estimate_columns(item.figures, columns.values())
        cells = tuple(to_target(columns_of_arm, column) for column in columns.values())
        tracks.append(Track(item.arm.look, item.arm.label, marks, cells))
    edge = max(run.budget for run in results.finished)
    caption = (
        f"Training tokens until the validation loss stays for three evaluations at or below the loss of "
        f"{results.reference.arm.label} at {_shares(results, 'and')} of its budget. One dot per run; an open "
        f"mark at the edge is a run that did not reach the target within its budget.{_schedule(results)}"
    )
    return [
        TrackChart(
            "tokens_to_target",
            "Tokens to target",
            caption,
            "Training tokens (dashed: budget)",
            (0.0, edge),
            ("0", quantity(edge)),
            tuple((f"{share} %", share) for share in (f"{100 * target.fraction:g}" for target in columns)),
            tuple(tracks),
            rows,
        )
    ]


def _shares(results: Results, last: str) -> str:
    """Return the shares of the reference's budget that define the targets: `50, 75 and 90 %`."""
    shares = [f"{100 * target.fraction:g}" for target in results.targets]
    return f"{f' {last} '.join(filter(None, [', '.join(shares[:-1]), shares[-1]]))} %"


def _schedule(results: Results) -> str:
    """Return a sentence on how a cosine schedule affects these times, if any run used one."""
    schedules = {run.config["trainer"].get("schedule") for run in results.finished}
    if "cosine" not in schedules:
        return ""
    return (
        " The learning rate follows a cosine that ends at the budget, so these times partly reflect the "
        "schedule; to study convergence, use trainer.schedule=wsd or constant."
    )


def performance_profile(results: Results) -> list[LineChart]:
    """Return the share of targets reached within a factor of the fastest arm (Dolan and More 2002)."""
    timed = [item for item in results.arms if item.times]
    curves = profile(timed)
    if curves is None:
        return []
    solved = dict(zip([item.arm.label for item in timed], curves.solved, strict=True))
    series = lines(results, lambda item: solved.get(item.arm.label, ()))
    seeds = len({seed for _, seed in curves.problems})
    caption = (
        f"The share of {len(curves.problems)} problems that an arm solves within a factor of the fastest "
        "arm's tokens. At a factor of 1, it is how often the arm is the fastest; at the right end, how often "
        f"it reaches the target. The problems are the targets at {_shares(results, 'and')} of the budget of "
        f"{results.reference.arm.label} on {seeds} shared seed{'s' * (seeds > 1)}. Nothing is tested."
    )
    return [
        LineChart(
            "performance_profile",
            "Performance profile of tokens to target",
            caption,
            "Factor of the fastest arm's tokens",
            "Share of problems solved",
            series,
            decades(series, "×{:g}".format),
            base=10,
            stepped=True,
            frame=(0.0, 1.0),
        )
    ]
