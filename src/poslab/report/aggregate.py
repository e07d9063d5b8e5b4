"""One arm's figures over its seeds."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from poslab.report import measures
from poslab.report.arms import Arm
from poslab.report.measures import Value
from poslab.report.statistics import Estimate, estimate, ratio

# Families of figures with a column a multiple of L; the first two come first in every table.
BY_LENGTH = ("loss", "sliding", "bits_per_byte", "sliding_bits_per_byte", "early_token_curse", "context_gain")
TARGETS = {0.5: "_50", 0.75: "", 0.9: "_90"}
SINGLE = ("plateau", "aulc", "validation_loss", "tokens_per_second", "seconds", "flops")


@dataclass(frozen=True)
class ArmFigures:
    """An arm's figures over its finished seeds, by the names of summary.csv's columns."""

    arm: Arm
    figures: Mapping[str, Estimate]
    rows: tuple[Mapping[str, Value], ...]  # of its finished runs, by seed
    reached: Mapping[str, tuple[int, int]]  # by target: how many runs reached it, of how many
    speed_up: tuple[int, float, float | None, float | None] | None  # tokens to target over the reference's

    def mean(self, figure: str) -> float | None:
        found = self.figures.get(figure)
        return None if found is None else found.mean

    def half_width(self, figure: str) -> float | None:
        found = self.figures.get(figure)
        return None if found is None else found.half_width

    def by_seed(self, figure: str) -> dict[int, float]:
        """The figure of each seed that has it."""
        values = {row["seed"]: row.get(figure) for row in self.rows}
        return {
            seed: float(value)
            for seed, value in values.items()
            if isinstance(seed, int) and isinstance(value, int | float)
        }


def estimates(rows: Sequence[Mapping[str, Value]], columns: Iterable[str]) -> dict[str, Estimate]:
    """What the rows, one a seed, say together on each figure that one of them has."""
    found: dict[str, Estimate] = {}
    for column in columns:
        values = [float(row[column]) for row in rows if isinstance(row.get(column), int | float)]  # type: ignore[arg-type]
        summary = estimate(values)
        if summary is not None:
            found[column] = summary
    return found


def arm_figures(
    arm: Arm,
    rows: Mapping[str, Mapping[str, Value]],
    multiples: tuple[float, ...],
    reference: ArmFigures | None,
) -> ArmFigures:
    """The figures of `arm` from the rows of its runs; `reference` is None for the reference itself."""
    mine = tuple(rows[run.name] for run in arm.finished)
    columns = [f"{family}_{measures.name(k)}" for family in (*BY_LENGTH, "loss_change") for k in multiples]
    found = estimates(mine, (*columns, *SINGLE))
    reached = {}
    diverged = len(
        {run.seed for run in arm.runs if run.status == "diverged"} - {run.seed for run in arm.finished}
    )
    for suffix in TARGETS.values():
        answers = [row[f"reached{suffix}"] for row in mine if f"reached{suffix}" in row]
        if answers:
            # A diverged run did not reach the target either.
            reached[suffix] = (sum(answer is True for answer in answers), len(answers) + diverged)
            column = f"tokens_to_target{suffix}"
            if all(answers) and not diverged:
                # A mean without the runs that did not get there would flatter the arm.
                summary = estimate([float(row[column]) for row in mine])  # type: ignore[arg-type]
                found |= {column: summary} if summary else {}
    result = ArmFigures(arm, found, mine, reached, None)
    # Like the mean, the ratio is there only where every run of both arms reached the target.
    complete = all("tokens_to_target" in figures for figures in (found, (reference or result).figures))
    against = (reference or result).by_seed("tokens_to_target") if complete else {}
    return ArmFigures(
        arm, found, mine, reached, ratio(result.by_seed("tokens_to_target"), against) if against else None
    )
