"""Differences of two arms in a loss by length, with the noise of seeds and of the scored text."""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import replace

from poslab.analysis.estimates import ArmFigures
from poslab.analysis.statistics import Difference, TextNoise, paired
from poslab.record.losses import LossSum
from poslab.record.measures import IN_BITS, family, is_in_bits, multiple, name
from poslab.record.reader import Run

FEWEST_DOCUMENTS = 2  # the interval shows how uncertain so few are
FEWEST_SEGMENTS = 8  # with fewer, a standard error is as uncertain as the loss itself
PROTOCOLS = {"loss": "non_overlapping", "sliding": "sliding"}  # the protocol that measures each loss family
PROTOCOLS |= {IN_BITS[nats]: protocol for nats, protocol in PROTOCOLS.items()}


def difference(
    arm: ArmFigures, against: ArmFigures, figure: str, less: str | None = None, by_segment: bool = False
) -> Difference | None:
    """Return an arm less another on `figure`, or on `figure` minus `less`; None without shared seeds."""
    signs = {figure: 1} if less is None else {figure: 1, less: -1}
    terms = [
        (item, loss, side * sign) for loss, sign in signs.items() for item, side in ((arm, 1), (against, -1))
    ]
    return contrast(terms, by_segment)


def contrast(terms: Sequence[tuple[ArmFigures, str, int]], by_segment: bool = False) -> Difference | None:
    """Return the signed sum of arms' figures, paired over the seeds that all arms have; None without any.

    With `by_segment`, compute the noise of the text also for records without documents; no interval includes
    that noise. Figures other than losses by length and context gains have only the noise of seeds.
    """
    by_seed = [(item.by_seed(figure), sign) for item, figure, sign in terms]
    seeds = set.intersection(*(set(values) for values, _ in by_seed))
    above, below = (
        {seed: math.fsum(values[seed] for values, sign in by_seed if sign == side) for seed in seeds}
        for side in (1, -1)
    )
    noise = text_noise([(item, figure, sign, seeds) for item, figure, sign in terms], by_segment)
    return paired(above, below, noise)


def text_noise(
    terms: Iterable[tuple[ArmFigures, str, float, Set[int]]], by_segment: bool = False
) -> TextNoise | None:
    """Return how much other text would change a sum of arms' figures, each with its weight and seeds."""
    signed = [
        (_measured(run, loss), weight * sign / len(seeds), is_in_bits(loss))
        for item, figure, weight, seeds in terms
        for run in item.arm.finished
        if run.seed in seeds
        for loss, sign in _losses(figure).items()
    ]
    return noise_of_losses(signed, by_segment)


def _losses(figure: str) -> dict[str, int]:
    """Return the losses by length, with their signs, that sum to a figure."""
    if family(figure) == "context_gain":
        longer = multiple(figure)  # at L it is 0, whatever the text
        return {} if longer == 1 else {f"sliding_{name(1)}": 1, f"sliding_{name(longer)}": -1}
    return {figure: 1} if family(figure) in PROTOCOLS else {}


def noise_of_losses(
    signed: Sequence[tuple[Mapping[str, LossSum], float, bool]], by_segment: bool = False
) -> TextNoise | None:
    """Return how much other text would change a sum of losses, each with its weight and whether in bits.

    The draws are documents or, `by_segment` in records without documents, segments if all runs scored the
    same. A loss is a ratio of sums, nats over tokens, so a draw adds its nats less the mean loss times its
    tokens (Cochran, Sampling Techniques, 1977, section 2.11). Summing a draw's additions over all runs pairs
    the arms. None with too few draws.
    """
    of_documents = all(part.document for scored, *_ in signed for part in scored.values())
    alike = len({frozenset((key, part.tokens) for key, part in scored.items()) for scored, *_ in signed}) == 1
    if not signed or not (of_documents or (by_segment and alike)):
        return None
    added, shares = defaultdict[str, float](float), defaultdict[str, float](float)
    for scored, weight, in_bits in signed:
        if not (draws := _draws(scored, in_bits)):
            return None
        for draw, (nats, share) in draws.items():
            added[draw] += weight * nats
            shares[draw] += share
    fewest = FEWEST_DOCUMENTS if of_documents else FEWEST_SEGMENTS
    noise = noise_of_draws(added.values(), shares.values(), fewest)
    return noise if noise is None or of_documents else replace(noise, documents=None)


def _draws(scored: Mapping[str, LossSum], in_bits: bool) -> dict[str, tuple[float, float]]:
    """Return what each document, or segment without one, adds to a run's mean loss, and its share of it."""
    nll, sizes = defaultdict[str, float](float), defaultdict[str, float](float)
    for segment, part in scored.items():
        draw = part.document or segment
        nll[draw] += part.nll
        sizes[draw] += (part.bytes or 0) * math.log(2) if in_bits else part.tokens
    whole = math.fsum(sizes.values())
    mean = math.fsum(nll.values()) / whole if whole else 0.0
    return {draw: ((nll[draw] - mean * size) / whole, size / whole) for draw, size in sizes.items() if whole}


def added_by_documents(item: ArmFigures, figure: str, seeds: Set[int]) -> dict[str, float]:
    """Return what each document adds to an arm's mean loss over `seeds`; empty without documents."""
    added = defaultdict[str, float](float)
    for run in item.arm.finished:
        if run.seed in seeds:
            scored = _measured(run, figure)
            if not all(part.document for part in scored.values()):
                return {}
            for draw, (nats, _) in _draws(scored, is_in_bits(figure)).items():
                added[draw] += nats / len(seeds)
    return added


def noise_of_draws(
    added: Collection[float], shares: Collection[float], fewest: int = FEWEST_DOCUMENTS
) -> TextNoise | None:
    """Return the noise of a mean from what each document adds to it and its share; None with too few.

    Degrees of freedom are one less than the effective number of documents, 1 over the sum of squared shares
    (Kish, Survey Sampling, 1965, section 11.7). The variance is unbiased if documents vary equally.
    """
    whole = math.fsum(shares)
    squares, cubes = (math.fsum((share / whole) ** power for share in shares) for power in (2, 3))
    freedom = 1 / squares - 1
    if freedom + 1 < fewest * (1 - 1e-9):
        return None
    variance = math.fsum(value**2 for value in added) / (1 - 2 * cubes / squares + squares)
    return TextNoise(variance, freedom, len(added))


def _measured(run: Run, figure: str) -> Mapping[str, LossSum]:
    """Return the segments of a run over which a loss is the mean."""
    return run.segments.get((PROTOCOLS[family(figure)], multiple(figure)), {})
