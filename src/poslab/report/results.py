"""Everything a report says, as figures of runs and of arms; tables, charts and pages only show it."""

import math
import statistics as order_statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from poslab.report import measures
from poslab.report.aggregate import TARGETS, ArmFigures, arm_figures, diverged_times
from poslab.report.arms import Arm, arms, choose_reference
from poslab.report.compare import Comparison, comparable, compare, primary_figure
from poslab.report.formatting import plain
from poslab.report.load import TUNING, Records, Run, load_studies
from poslab.report.measures import Value
from poslab.report.ranks import Pair, Rank, pairs, ranks
from poslab.report.rates import Tuning, tunings
from poslab.report.rescaled import RescaledArm, rescaled_arms
from poslab.report.sums import ReportError


@dataclass(frozen=True)
class Target:
    """A validation loss to reach: the reference's median over its seeds at a fraction of its budget."""

    fraction: float
    suffix: str
    loss: float
    n: int


@dataclass(frozen=True)
class Asked:
    """What a report is on: its name, and what the command line says for it."""

    name: str
    option: str  # study=a,b


@dataclass(frozen=True)
class Results:
    """A study's figures, or several studies': a row a run, and what the arms' seeds say together."""

    studies: tuple[str, ...]
    commands: tuple[str, ...]
    runs: tuple[Run, ...]
    rows: tuple[Mapping[str, Value], ...]  # beside `runs`
    arms: tuple[ArmFigures, ...]
    reference: ArmFigures
    reference_warning: str | None
    multiples: tuple[float, ...]
    targets: tuple[Target, ...]
    aulc_interval: tuple[int, int] | None
    primary: str | None
    comparisons: tuple[Comparison, ...]
    pairs: tuple[Pair, ...]  # of arms, on the primary figure
    ranks: Mapping[str, Rank]  # by the arm's label; empty with one seed
    rescaled: tuple[RescaledArm, ...]  # of the arms whose runs were measured under other rotations too
    tunings: tuple[Tuning, ...]  # how the learning rates were chosen, where they were
    asked: Asked

    @property
    def study(self) -> str:
        """What the report is called: the study, or all of them; chosen runs have a name of their own."""
        return self.asked.name

    @property
    def finished(self) -> tuple[Run, ...]:
        return tuple(run for item in self.arms for run in item.arm.finished)

    @property
    def compared(self) -> tuple[Run, ...]:
        """Every run that was made to be compared, whatever became of it."""
        return tuple(run for run in self.runs if not run.tunes)

    @property
    def context_length(self) -> int | None:
        """The training length L that all arms share, or None."""
        lengths = {item.arm.context_length for item in self.arms}
        return lengths.pop() if len(lengths) == 1 else None

    @property
    def seeds(self) -> int:
        """The largest number of finished seeds of any arm."""
        return max(len(item.rows) for item in self.arms)

    @property
    def attentions(self) -> int:
        return len({item.arm.attention for item in self.arms})


def gather(study: str, runs: Path, reference: str | None) -> Results:
    """All figures of a study, or of several with commas between their names.

    Raises ReportError where there is nothing to report or no such reference.
    """
    return figures(load_studies(study, runs), Asked(study.replace(",", "+"), f"study={study}"), reference)


def figures(records: tuple[Records, ...], asked: Asked, reference: str | None) -> Results:
    """All figures of these records. Raises ReportError as `gather` does."""
    listed, found = arms(records)
    finished = [run for run in listed if run.status == "done" and not run.tunes]
    for one in records:
        if one.study not in {run.study for run in finished}:
            raise ReportError(_nothing(one))
    against, warning = choose_reference(found, records, reference)
    multiples = measures.multiples(finished)
    targets = _targets(against)
    same_data = {
        run.name for run in listed if run.status in ("done", "diverged") and comparable(run, against)
    }
    interval = measures.common_interval(run for run in finished if run.validations)
    tuned = tunings(listed, found)
    label_of = {run.name: arm.label for arm in found for run in arm.runs}
    label_of |= {run.name: one.label for one in reversed(tuned) for run in one.runs}
    rows = {
        run.name: _row(
            run,
            label_of.get(run.name),
            multiples,
            targets if run.name in same_data else (),
            interval,
        )
        for run in listed
    }
    aims = {target.suffix: target.loss for target in targets}
    base = arm_figures(against, rows, multiples, diverged_times(against, same_data, aims), None)
    everything = tuple(
        base
        if arm is against
        else arm_figures(arm, rows, multiples, diverged_times(arm, same_data, aims), base)
        for arm in found
    )
    primary = primary_figure(base, multiples)
    every_pair = pairs(everything, base, primary)
    commands = dict.fromkeys(line for one in records for line in one.commands)
    return Results(
        tuple(one.study for one in records),
        tuple(plain(line, 1000) for line in commands),
        listed,
        tuple(rows[run.name] for run in listed),
        everything,
        base,
        warning,
        multiples,
        targets,
        interval,
        primary,
        compare(everything, base, primary, multiples),
        every_pair,
        ranks(every_pair),
        rescaled_arms(everything, multiples),
        tuned,
        asked,
    )


def _nothing(records: Records) -> str:
    counts: dict[str, int] = {}
    compared = [run for run in records.runs if not run.tunes]
    for run in compared:
        counts[run.status] = counts.get(run.status, 0) + 1
    said = ", ".join(f"{n} {plain(status, 30)}" for status, n in sorted(counts.items()))
    why = next((f" ({plain(run.reason, 120)})" for run in compared if run.reason), "")
    if len(compared) < len(records.runs):
        tuning = f"{len(records.runs) - len(compared)} that tune learning rates"
        said, why = f"{said}{why} and {tuning}" if said else f"only {tuning}", ""
    return f"study={records.study} has no finished run: {said}{why}; run its command again to finish them"


def _targets(reference: Arm) -> tuple[Target, ...]:
    targets = []
    for fraction, suffix in TARGETS.items():
        losses = [loss for run in reference.finished if (loss := measures.loss_at(run, fraction)) is not None]
        if losses and all(measures.can_confirm(run, fraction) for run in reference.finished):
            targets.append(Target(fraction, suffix, order_statistics.median(losses), len(losses)))
    return tuple(targets)


def _row(
    run: Run,
    label: str | None,
    multiples: tuple[float, ...],
    targets: tuple[Target, ...],
    interval: tuple[int, int] | None,
) -> dict[str, Value]:
    """A run's row of summary.csv. Figures are there for the runs that count alone."""
    # A run that tunes is in no arm: a mean over the rows of an arm is one over its own runs.
    named = ("tuning_of", "arm") if run.tunes else ("arm", "tuning_of")
    row: dict[str, Value] = {"study": run.study, "run": run.directory, named[0]: label, named[1]: None}
    row |= {"status": plain(run.status, 40), "reason": plain(run.reason) or None}
    if not run.readable:
        return row
    row |= _described(run)
    if run.status != "done":
        return row
    last = run.validations[-1].loss if run.validations else math.inf
    row["validation_loss"] = last if math.isfinite(last) else None
    if run.tunes:
        return row
    row |= measures.extrapolation(run, multiples)
    row |= measures.changes(row, row["loss_1x"], multiples, "loss_change")
    row |= measures.usable_length(run) | measures.failure(run)
    for target in targets:
        row |= _reached(run, target)
    row["aulc_from"], row["aulc_to"] = interval or (None, None)
    row["aulc"] = measures.area(run.validations, interval) if interval and run.validations else None
    return row


def _described(run: Run) -> dict[str, Value]:
    manifest = run.manifest
    data = manifest.get("data") or {}
    tokens, seconds = _number(manifest.get("tokens")), _number(manifest.get("seconds"))
    return {
        "pos": plain(run.pos, 80),
        "attention": plain(run.attention, 80),
        "part": TUNING if run.tunes else "comparison",
        "learning_rate": run.learning_rate,
        "seed": run.seed,
        "context_length": run.context_length,
        "budget": run.budget,
        "parameters": _number(manifest.get("parameters")),
        "tokens": tokens,
        "flops": _number(manifest.get("flops")),
        "seconds": seconds,
        "tokens_per_second": tokens / seconds if tokens and seconds else None,
        "seconds_validation": _number(manifest.get("seconds_validation")),
        "seconds_evaluation": _number(manifest.get("seconds_evaluation")),
        **{
            key: _text(manifest.get(key))
            for key in ("kernel", "precision", "device", "code", "started", "finished")
        },
        "data": _text(data.get("name")),
        "data_fingerprint": _text(data.get("fingerprint")),
        "vocabulary": _number(data.get("vocabulary")),
    }


def _number(value: object) -> float | int | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _text(value: object) -> str | None:
    return None if value is None else plain(value, 120)


def _reached(run: Run, target: Target) -> dict[str, Value]:
    found = measures.crossing(run.validations, target.loss)
    figures: dict[str, Value] = {
        f"tokens_to_target{target.suffix}": found.tokens if found else None,
        f"reached{target.suffix}": found is not None,
        f"tokens_without_target{target.suffix}": None
        if found
        else measures.tokens_without(run.validations, target.loss),
    }
    if target.suffix == "":
        flops, tokens = _number(run.manifest.get("flops")), _number(run.manifest.get("tokens"))
        figures["steps_to_target"] = found.steps if found else None
        figures["seconds_to_target"] = found.seconds if found else None
        figures["flops_to_target"] = flops * found.tokens / tokens if found and flops and tokens else None
    return figures
