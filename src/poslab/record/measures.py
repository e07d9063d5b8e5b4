"""The figures of one run, from the sums in its record. Losses are nats per token unless stated otherwise.

An undefined figure (not measured, or not finite) is None, never a number.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from poslab.record.losses import LossSum, Validation
from poslab.record.reader import Run

MULTIPLES = (1.0, 2.0, 4.0, 8.0)  # these always have columns, others only if a run has them
TOLERANCES = {"": 0.05, "_1pct": 0.01}  # the rise that usable length and failure position allow
BINS_AN_OCTAVE = 4
PLATEAU_FROM = 1 / 2  # of L
STRIDE = 1 / 8  # of L: the stride of sliding windows
# Families of losses in nats per token, and the same losses in bits per byte, which compare across tokenizers.
IN_BITS = {"loss": "bits_per_byte", "sliding": "sliding_bits_per_byte"}
CONFIRMATIONS = 3  # consecutive validations that have to be at or below a target

Value = float | int | str | bool | None


def name(multiple: float) -> str:
    """Return the suffix of a column for a multiple of L: 0.5 -> "0.5x"."""
    return f"{multiple:g}x"


def family(column: str) -> str:
    """Return a column's name without its multiple: sliding_8x -> sliding."""
    return column.rpartition("_")[0]


def is_in_bits(column: str | None) -> bool:
    """Return whether a figure is a loss in bits per byte, such as sliding_bits_per_byte_8x."""
    return column is not None and family(column) in IN_BITS.values()


def unit(column: str | None) -> str:
    """Return the unit of a loss."""
    return "bits per byte" if is_in_bits(column) else "nats per token"


def short_unit(column: str | None) -> str:
    """Return the unit for use after a number in a sentence: nats, or bits per byte."""
    return unit(column).removesuffix(" per token")


def multiple(column: str) -> float:
    """Return the multiple of L in a column's name: sliding_8x -> 8.0."""
    return float(column.rpartition("_")[2].removesuffix("x"))


def multiples(runs: Iterable[Run]) -> tuple[float, ...]:
    """Return all multiples of L that have a column: 1, 2, 4, 8 and any others that were measured."""
    return tuple(sorted({*MULTIPLES, *(multiple for run in runs for _, multiple in run.segments)}))


def mean_loss(sums: Iterable[LossSum]) -> float | None:
    """Return nats per token over all sums together."""
    parts = list(sums)
    return _divide(math.fsum([part.nll for part in parts]), sum([part.tokens for part in parts]))


def mean_bits(sums: Iterable[LossSum]) -> float | None:
    """Return bits per byte over all sums together; None if the bytes of any are unknown."""
    parts = list(sums)
    counts = [part.bytes for part in parts if part.bytes is not None]
    if len(counts) < len(parts):
        return None
    return _divide(math.fsum([part.nll for part in parts]) / math.log(2), sum(counts))


def _divide(nll: float, count: int) -> float | None:
    return nll / count if count > 0 and math.isfinite(nll) else None


def extrapolation(run: Run, lengths: Sequence[float]) -> dict[str, Value]:
    """Return losses by evaluation length and protocol, the early-token curse and the context gain."""
    figures: dict[str, Value] = {}
    plain = {k: run.segments.get(("non_overlapping", k), {}) for k in lengths}
    sliding = {k: run.segments.get(("sliding", k), {}) for k in lengths}
    matched = {k: run.segments.get(("matched", k), {}) for k in lengths}  # as plain, on sliding's targets
    for k in lengths:
        figures[f"loss_{name(k)}"] = mean_loss(plain[k].values())
        figures[f"sliding_{name(k)}"] = mean_loss(sliding[k].values())
        figures[f"bits_per_byte_{name(k)}"] = mean_bits(plain[k].values())
        figures[f"sliding_bits_per_byte_{name(k)}"] = mean_bits(sliding[k].values())
        figures[f"early_token_curse_{name(k)}"] = _difference_on_shared(matched[k], sliding[k])
        figures[f"context_gain_{name(k)}"] = _difference_on_shared(sliding.get(1.0, {}), sliding[k])
    return figures


def _difference_on_shared(losses: Mapping[str, LossSum], base: Mapping[str, LossSum]) -> float | None:
    """Return `losses` minus `base` on the segments that both have; None if numbers of tokens differ."""
    shared = losses.keys() & base.keys()
    if any(losses[segment].tokens != base[segment].tokens for segment in shared):
        return None
    first, second = (mean_loss(side[segment] for segment in sorted(shared)) for side in (losses, base))
    return None if first is None or second is None else first - second


def changes(
    figures: Mapping[str, Value], base: Value, lengths: Sequence[float], column: str, family: str = "loss"
) -> dict[str, Value]:
    """Return the loss at each length relative to `base`, minus 1: 0.1 if it is a tenth higher.

    `family` is "loss", for non-overlapping windows, or "sliding".
    """
    ratios: dict[str, Value] = {}
    for k in lengths:
        loss = figures[f"{family}_{name(k)}"]
        defined = isinstance(loss, float) and isinstance(base, float) and base > 0
        ratios[f"{column}_{name(k)}"] = loss / base - 1 if defined else None  # type: ignore[operator]
    return ratios


def usable_length(run: Run, trained: Run | None = None) -> dict[str, Value]:
    """Return the largest tested length up to which the sliding loss stays within 5 % (1 %) of that at L.

    In tokens and as a multiple of L. `_at_least` is true if the longest tested length passes and the scheme
    is defined beyond it. If `run` is a rescaling of `trained`, the limit is relative to the loss of `trained`
    at L, and a length of 0 means that the rescaling exceeds the limit already at L.
    """
    figures: dict[str, Value] = {}
    base = _sliding(run if trained is None else trained).get(1.0)
    for suffix, tolerance in TOLERANCES.items():
        limit = None if base is None else (1 + tolerance) * base
        figures |= usable_up_to(run, limit, f"usable_length{suffix}")
    return figures


def usable_up_to(run: Run, limit: float | None, key: str) -> dict[str, Value]:
    """Return the largest tested length up to which the sliding loss is at most `limit`, in nats per token.

    The columns are `key`, in tokens, `key`_multiple, of L, and `key`_at_least, as for `usable_length`. The
    length is 0 if the loss at L is already above the limit.
    """
    losses = _sliding(run)
    if limit is None or losses.get(1.0) is None:
        return {key: None, f"{key}_multiple": None, f"{key}_at_least": None}
    tested = sorted(k for k in losses if k >= 1)
    longest = 0.0
    for k in tested:
        loss = losses[k]
        if loss is None or loss > limit:
            break
        longest = k
    beyond = run.max_length is None or run.max_length >= 2 * longest * run.context_length
    return {
        key: round(longest * run.context_length),
        f"{key}_multiple": longest,
        f"{key}_at_least": longest == tested[-1] and beyond,
    }


def _sliding(run: Run) -> dict[float, float | None]:
    """Return the loss over sliding windows by multiple of L."""
    return {
        k: mean_loss(segments.values())
        for (protocol, k), segments in run.segments.items()
        if protocol == "sliding"
    }


@dataclass(frozen=True)
class Bin:
    """Positions that are averaged together: 0-based, both ends included."""

    first: int
    last: int
    center: float  # geometric, in tokens of context (position + 1)
    loss: float


def position_bins(run: Run) -> tuple[Bin, ...]:
    """Return the loss by position in log-spaced bins, four per octave, with edges at L/2 and L.

    Bins without a finite loss are left out.
    """
    return tuple(item for item in _all_bins(run) if math.isfinite(item.loss))


def _all_bins(run: Run) -> tuple[Bin, ...]:
    """Return the bins of `position_bins`, including those without a finite loss, which is then infinite."""
    if not run.positions:
        return ()
    length, longest = run.context_length, max(run.positions) + 1
    start, stop = (BINS_AN_OCTAVE * math.log2(c / length) for c in (1, longest))
    # With c = position + 1 tokens of context, a bin contains the c in (edge, next edge].
    steps = range(math.floor(start), math.ceil(stop) + 1)
    edges = sorted({0, *(math.floor(length * 2 ** (i / BINS_AN_OCTAVE) + 1e-9) for i in steps)})
    bins = []
    for low, high in pairwise(edges):
        members = [p for p in range(low, min(high, longest)) if p in run.positions]
        sums = [run.positions[p] for p in members]
        if any(part.tokens for part in sums):
            first, last = members[0], members[-1]
            loss = mean_loss(sums)
            center = math.sqrt((first + 1) * (last + 1))
            bins.append(Bin(first, last, center, math.inf if loss is None else loss))
    return tuple(bins)


def failure(run: Run, trained: Run | None = None) -> dict[str, Value]:
    """Return the first position past L where a bin is more than 5 % (1 %) above the plateau on [L/2, L].

    `_found` is false for "none up to the longest window", empty for "not measured past L". If `run` is a
    rescaling of `trained`, the plateau of `trained` sets the limit; `plateau` is always the run's own.
    """
    first_over = _first_over(run, _plateau(trained or run), "failure_position")
    return {"plateau": _plateau(run), **first_over}


def rise(run: Run) -> dict[str, Value]:
    """Return the position past L from which every bin is more than 5 % (1 %) above the run's own plateau.

    Unlike in `failure`, a bin does not count if a later one is within the limit: its text may be harder.
    """
    return _first_over(run, _plateau(run), "rise_position", lasting=True)


def _first_over(run: Run, plateau: float | None, column: str, lasting: bool = False) -> dict[str, Value]:
    """Return the first position past L with a bin over the limit; if `lasting`, all later are over it."""
    figures: dict[str, Value] = {}
    beyond = [item for item in _all_bins(run) if item.first >= run.context_length]
    for suffix, tolerance in TOLERANCES.items():
        key = f"{column}{suffix}"
        if plateau is None or not beyond:
            figures |= {key: None, f"{key}_found": None}
            continue
        limit = (1 + tolerance) * plateau
        last_within = max((item.first for item in beyond if item.loss <= limit), default=0) if lasting else 0
        first = next((item.first for item in beyond if item.loss > limit and item.first > last_within), None)
        figures |= {key: first, f"{key}_found": first is not None}
    return figures


def _plateau(run: Run) -> float | None:
    length = run.context_length
    within = range(math.ceil(PLATEAU_FROM * length) - 1, length)
    return mean_loss([run.positions[p] for p in within if p in run.positions])


@dataclass(frozen=True)
class Crossing:
    """The point at which a run reached a target loss."""

    tokens: float
    steps: float
    seconds: float | None


def crossing(curve: Sequence[Validation], target: float) -> Crossing | None:
    """Return where the loss first reaches `target` and stays at or below it for three validations, or None.

    Between the first of these and the validation before, the loss is interpolated linearly in the logarithm
    of the tokens (in the tokens themselves if the validation before is at 0 tokens).
    """
    for i in range(len(curve) - CONFIRMATIONS + 1):
        if not all(point.loss <= target for point in curve[i : i + CONFIRMATIONS]):
            continue
        after = curve[i]
        before = curve[i - 1] if i else None
        if before is None or not math.isfinite(before.loss):
            return Crossing(float(after.tokens), float(after.step), after.seconds)
        part = (before.loss - target) / (before.loss - after.loss)
        if before.tokens > 0:
            tokens = before.tokens * (after.tokens / before.tokens) ** part
        else:
            tokens = after.tokens * part
        # Between two validations, steps and seconds are taken as linear in tokens.
        share = (tokens - before.tokens) / (after.tokens - before.tokens)
        seconds = None
        if before.seconds is not None and after.seconds is not None:
            seconds = before.seconds + share * (after.seconds - before.seconds)
        return Crossing(tokens, before.step + share * (after.step - before.step), seconds)
    return None


def tokens_without(curve: Sequence[Validation], target: float) -> float:
    """Return a lower bound on the tokens to a `target` not reached: those at the last validation above it.

    That is the whole budget, unless the run reached the target too late for two more validations.
    """
    return float(max((point.tokens for point in curve if not point.loss <= target), default=0))


def last_crossing(curve: Sequence[Validation]) -> float:
    """Return the tokens past which a crossing cannot be confirmed, since too few validations follow."""
    return float(curve[-CONFIRMATIONS].tokens) if len(curve) >= CONFIRMATIONS else 0.0


def loss_at(run: Run, fraction: float) -> float | None:
    """Return the loss at the validation nearest to a fraction of the budget (the earlier one in a tie)."""
    if not run.validations:
        return None
    loss = run.validations[_nearest(run, fraction)].loss
    return loss if math.isfinite(loss) else None


def can_confirm(run: Run, fraction: float) -> bool:
    """Return whether enough validations follow a fraction of the budget to confirm its loss."""
    return bool(run.validations) and len(run.validations) - _nearest(run, fraction) >= CONFIRMATIONS


def _nearest(run: Run, fraction: float) -> int:
    distances = [abs(point.tokens - fraction * run.budget) for point in run.validations]
    return distances.index(min(distances))


def common_interval(runs: Iterable[Run]) -> tuple[int, int] | None:
    """Return the interval of training tokens that the validations of every run cover, or None."""
    counts = [[point.tokens for point in run.validations if point.tokens > 0] for run in runs]
    if not counts or not all(counts):
        return None
    start, stop = max(tokens[0] for tokens in counts), min(tokens[-1] for tokens in counts)
    return (start, stop) if start < stop else None


def area(curve: Sequence[Validation], interval: tuple[int, int]) -> float | None:
    """Return the mean loss over the logarithm of the tokens in `interval`: AULC divided by its length."""
    points = [(math.log(point.tokens), point.loss) for point in curve if point.tokens > 0]
    start, stop = map(math.log, interval)
    total = 0.0
    for (x0, y0), (x1, y1) in pairwise(points):
        low, high = max(x0, start), min(x1, stop)
        if low < high:
            slope = (y1 - y0) / (x1 - x0)
            total += (high - low) * (y0 + slope * ((low + high) / 2 - x0))
    return total / (stop - start) if math.isfinite(total) else None
