"""Differences of two arms in a loss by length, with the noise of seeds and of the text that is scored."""

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property

from poslab.analysis.estimates import ArmFigures
from poslab.analysis.statistics import Difference, TextNoise, paired
from poslab.record.losses import LossSum
from poslab.record.measures import IN_BITS, family, is_in_bits, multiple, name
from poslab.record.reader import Run

FEWEST_DOCUMENTS = 2  # the interval shows how uncertain so few are
FEWEST_SEGMENTS = 8  # of fewer, a standard error is as uncertain as the loss itself
PROTOCOLS = {"loss": "non_overlapping", "sliding": "sliding"}  # that a family of losses is measured in
PROTOCOLS |= {IN_BITS[nats]: protocol for nats, protocol in PROTOCOLS.items()}


def difference(
    arm: ArmFigures, against: ArmFigures, figure: str, less: str | None = None, by_segment: bool = False
) -> Difference | None:
    """Return an arm less another in a figure, paired over shared seeds; None without any.

    The figure is a loss by length or a context gain; with `less`, it is the figure less that other loss.
    `by_segment` asks for the noise of the text also in records without documents; such noise is in no
    interval. Other figures have only the noise of seeds.
    """
    values, base = (_by_seed(item, figure, less) for item in (arm, against))
    seeds = values.keys() & base.keys()
    terms = {figure: 1} if less is None else {figure: 1, less: -1}
    if family(figure) == "context_gain":
        terms = {f"sliding_{name(1)}": 1, f"sliding_{name(multiple(figure))}": -1}
    if not seeds or any(family(term) not in PROTOCOLS for term in terms):
        return paired(values, base)
    return paired(values, base, text_noise([(arm, 1), (against, -1)], terms, seeds, by_segment))


def _by_seed(item: ArmFigures, figure: str, less: str | None) -> dict[int, float]:
    values = item.by_seed(figure)
    if less is None:
        return values
    subtracted = item.by_seed(less)
    return {seed: values[seed] - subtracted[seed] for seed in values.keys() & subtracted.keys()}


def text_noise(
    arms: Sequence[tuple[ArmFigures, float]], terms: Mapping[str, int], seeds: Set[int], by_segment: bool
) -> TextNoise | None:
    """Return how far other text would change a sum of arms with their weights, averaged over `seeds` of all.

    A weight is 1 or -1 in a difference. Terms are losses by length with their signs.
    """
    signed = [
        (_draws(item, run, term), side * sign / len(seeds))
        for item, side in arms
        for run in item.arm.finished
        if run.seed in seeds
        for term, sign in terms.items()
    ]
    return _noise(signed, by_segment)


def noise_of_losses(
    signed: Sequence[tuple[Mapping[str, LossSum], float, bool]], by_segment: bool = False
) -> TextNoise | None:
    """Return how far other text would change a sum of losses, each with its weight and whether in bits.

    The draws are documents; in records without them, segments, if all runs have scored the same. A loss is a
    ratio of sums, nats over tokens, so a draw adds what it loses beyond its share of the mean (Cochran,
    Sampling Techniques, 1977, section 2.11); what one draw adds in all runs is summed, which pairs the arms.
    Degrees of freedom are Satterthwaite's of draws of these sizes. None of too few draws.
    """
    return _noise([(_Draws(scored, in_bits), weight) for scored, weight, in_bits in signed], by_segment)


def _noise(signed: Sequence[tuple["_Draws", float]], by_segment: bool) -> TextNoise | None:
    of_documents = all(draws.are_documents for draws, _ in signed)
    alike = by_segment and len({draws.sizes for draws, _ in signed}) == 1
    if not signed or not (of_documents or alike):
        return None
    added, shares = defaultdict[str, float](float), defaultdict[str, float](float)
    for draws, weight in signed:
        if not draws.parts:
            return None
        for draw, (nats, share) in draws.parts.items():
            added[draw] += weight * nats
            shares[draw] += share
    fewest = FEWEST_DOCUMENTS if of_documents else FEWEST_SEGMENTS
    noise = noise_of_draws(added.values(), shares.values(), fewest)
    return noise if noise is None or of_documents else replace(noise, documents=None)


@dataclass(frozen=True)
class _Draws:
    """The documents, or segments without one, that a run's loss is the mean of; each counted once."""

    scored: Mapping[str, LossSum]
    in_bits: bool

    @cached_property
    def are_documents(self) -> bool:
        return all(part.document for part in self.scored.values())

    @cached_property
    def sizes(self) -> frozenset[tuple[str, int]]:
        return frozenset((segment, part.tokens) for segment, part in self.scored.items())

    @cached_property
    def parts(self) -> Mapping[str, tuple[float, float]]:
        """What each adds to the mean loss, and its share of it."""
        nll, sizes = defaultdict[str, float](float), defaultdict[str, float](float)
        for segment, part in self.scored.items():
            draw = part.document or segment
            nll[draw] += part.nll
            sizes[draw] += (part.bytes or 0) * math.log(2) if self.in_bits else part.tokens
        whole = math.fsum(sizes.values())
        mean = math.fsum(nll.values()) / whole if whole else 0.0
        return {
            draw: ((nll[draw] - mean * size) / whole, size / whole) for draw, size in sizes.items() if whole
        }


def _draws(item: ArmFigures, run: Run, figure: str) -> _Draws:
    """Return the draws of a run's loss, the same ones for every arm that its own is compared with."""
    known: dict[tuple[int, str], _Draws] = item.remembered
    if (run.seed, figure) not in known:
        scored = run.segments.get((PROTOCOLS[family(figure)], multiple(figure)), {})
        known[run.seed, figure] = _Draws(scored, is_in_bits(figure))
    return known[run.seed, figure]


def added_by_documents(item: ArmFigures, figure: str, seeds: Set[int]) -> dict[str, float]:
    """Return what each document adds to the mean loss of an arm over `seeds`; empty without documents."""
    added = defaultdict[str, float](float)
    for run in item.arm.finished:
        if run.seed in seeds:
            draws = _draws(item, run, figure)
            if not draws.are_documents:
                return {}
            for draw, (nats, _) in draws.parts.items():
                added[draw] += nats / len(seeds)
    return added


def noise_of_draws(
    added: Collection[float], shares: Collection[float], fewest: int = FEWEST_DOCUMENTS
) -> TextNoise | None:
    """Return the noise of a mean by what each document adds to it and its share; None of too few."""
    squares = math.fsum(share**2 for share in shares)
    freedom = squares**2 / math.fsum(share**4 for share in shares) - 1
    if freedom + 1 < fewest * (1 - 1e-9):
        return None
    variance = math.fsum(value**2 for value in added) * len(added) / (len(added) - 1)
    return TextNoise(variance, freedom, len(added))
