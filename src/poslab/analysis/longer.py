"""Arms beside controls that were trained at a longer length on as many tokens: what can be gained past L."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import permutations
from statistics import fmean

from poslab.analysis.arms import RATES, Arm, settings
from poslab.analysis.estimates import ArmFigures
from poslab.analysis.results import Results
from poslab.analysis.spread import noise_of_losses
from poslab.analysis.statistics import Difference, paired
from poslab.record.losses import LossSum
from poslab.record.measures import mean_loss
from poslab.record.reader import Run

# Settings that may change with the length at one budget of tokens.
FOLLOWING = {"context_length", "trainer.batch_size", "trainer.warmup_steps", *RATES}
IN_SCHEMES = {"start", "window"}  # in `pos` or a scheme inside: in tokens, or following the length as a share
FOLLOWING |= {"evaluate.longest", "evaluate.validations", "evaluate.validation_windows"}


@dataclass(frozen=True)
class Control:
    """An arm and the same trained at a longer length, with losses at that length on the same targets."""

    arm: ArmFigures
    longer: ArmFigures
    length: int  # the training length of `longer`, in tokens
    losses: tuple[float, float]  # means over shared seeds, nats per token in non-overlapping windows
    difference: Difference  # the arm's loss less that of `longer`


def controls(results: Results) -> tuple[Control, ...]:
    """Return every arm with its control: same budget, same text, and same settings except FOLLOWING.

    An arm with several controls of one length has none, and neither have arms that share one.
    """
    finished = [item for item in results.arms if item.rows]
    pairs = (_control(*pair) for pair in permutations(finished, 2))
    found = [control for control in pairs if control is not None]
    uses = Counter((id(item), control.length) for control in found for item in (control.arm, control.longer))
    return tuple(
        control
        for control in found
        if uses[id(control.arm), control.length] == uses[id(control.longer), control.length] == 1
    )


def _control(item: ArmFigures, longer: ArmFigures) -> Control | None:
    first, second = item.arm.finished[0], longer.arm.finished[0]
    length = second.context_length
    alike = first.budget == second.budget and first.data_fingerprint == second.data_fingerprint
    if first.context_length >= length or not alike or not _same(item.arm, longer.arm):
        return None
    scored, base_scored = (
        {run.seed: _scored(run, length) for run in side.arm.finished} for side in (item, longer)
    )
    values, base = (
        {seed: loss for seed, parts in side.items() if (loss := mean_loss(parts.values())) is not None}
        for side in (scored, base_scored)
    )
    seeds = sorted(
        seed for seed in values.keys() & base.keys() if _targets(scored[seed]) == _targets(base_scored[seed])
    )
    if not seeds:
        return None
    values, base = ({seed: side[seed] for seed in seeds} for side in (values, base))
    signs = (scored, 1 / len(seeds)), (base_scored, -1 / len(seeds))
    difference = paired(
        values, base, noise_of_losses([(side[seed], sign, False) for side, sign in signs for seed in seeds])
    )
    assert difference is not None
    losses = fmean(values.values()), fmean(base.values())
    return Control(item, longer, length, losses, difference)


def _same(arm: Arm, longer: Arm) -> bool:
    """Return whether an arm and its control share all settings except those that may follow the length."""
    first, second = (side.runs[0] for side in (arm, longer))
    ratio = second.context_length / first.context_length
    at_length, at_longer = (
        {key: value for key, value in settings(run.config).items() if key not in FOLLOWING}
        for run in (first, second)
    )

    def equal(key: str) -> bool:
        value, expected = at_longer[key], at_length[key]
        follows = key.startswith("pos.") and key.rpartition(".")[2] in IN_SCHEMES
        if follows and isinstance(value, int) and isinstance(expected, int):
            # Two shares of a length, each rounded to tokens, differ by up to this.
            return value == expected or abs(value - expected * ratio) <= (ratio + 1) / 2
        return value == expected

    return at_length.keys() == at_longer.keys() and all(map(equal, at_length))


def _scored(run: Run, length: int) -> Mapping[str, LossSum]:
    """Return the segments of a run's non-overlapping windows of `length` tokens; empty if it has none."""
    return run.segments.get(("non_overlapping", length / run.context_length), {})


def _targets(parts: Mapping[str, LossSum]) -> dict[str, tuple[int, str]]:
    """Return the number of targets and the document of each segment."""
    return {segment: (part.tokens, part.document) for segment, part in parts.items()}
