"""A study on several texts: how far they agree on each arm's difference from the reference, and on the order.

Losses of different texts do not compare, in nats or in bits; differences of arms on one text do, paired by
seed. Nothing here is a mean over texts, which takes five or more to have an interval worth printing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from poslab.analysis.comparisons import Comparison, alike
from poslab.analysis.results import Results
from poslab.record.measures import is_in_bits


@dataclass(frozen=True)
class Agreement:
    """An arm's differences from the reference in one figure, on each text that has them."""

    arm: str
    figure: str
    comparisons: tuple[Comparison | None, ...]  # beside the texts of the study

    @property
    def means(self) -> list[float]:
        """Nats, in the order of size."""
        return sorted(item.difference.mean for item in self.comparisons if item is not None)

    @property
    def lower(self) -> int:
        """Count the texts with a mean below 0."""
        return sum(mean < 0 for mean in self.means)

    def separated(self, side: str) -> int:
        """Count the texts with a test that reads `lower` or `higher`, corrected over all texts' claims."""
        return sum(item is not None and item.reading.startswith(side) for item in self.comparisons)


def agreements(texts: Sequence[Results], figure: str) -> list[Agreement]:
    """Return how far the texts agree in a figure, for each arm that is compared on one of them.

    Arms of another size or budget than the reference's are left out.
    """
    labels = dict.fromkeys(item.arm.label for text in texts for item in text.comparisons)
    by_text = []
    for text in texts:
        beside = {item.arm.label for item in text.beside_reference}
        found = (item for item in text.comparisons if item.figure == figure and item.arm.label in beside)
        by_text.append({item.arm.label: item for item in found})
    beside_texts = {label: tuple(compared.get(label) for compared in by_text) for label in labels}
    return [Agreement(label, figure, compared) for label, compared in beside_texts.items() if any(compared)]


@dataclass(frozen=True)
class Order:
    """How far two texts order the arms alike, by mean loss over the seeds."""

    texts: tuple[str, str]
    arms: int
    tau: float  # Kendall's: 1 the same order, -1 the reverse
    changed: tuple[tuple[str, str], ...]  # the first is lower on the first text, and higher on the second


def orders(texts: Sequence[Results], figure: str) -> list[Order]:
    """Return the agreement of each pair of texts that share two arms with this figure, comparable on each.

    Kendall's tau (1938) is concordant less discordant pairs of arms, over all pairs.
    """
    found = []
    for first, second in combinations(texts, 2):
        losses = [
            {
                item.arm.label: mean
                for item in alike(text.beside_reference, text.reference.arm, is_in_bits(figure))
                if (mean := item.mean(figure)) is not None
            }
            for text in (first, second)
        ]
        shared = [label for label in losses[0] if label in losses[1]]
        if len(shared) < 2:
            continue
        products = {
            pair: (losses[0][pair[0]] - losses[0][pair[1]]) * (losses[1][pair[0]] - losses[1][pair[1]])
            for pair in combinations(sorted(shared, key=losses[0].__getitem__), 2)
        }
        signs = [(product > 0) - (product < 0) for product in products.values()]
        changed = tuple(pair for pair, product in products.items() if product < 0)
        found.append(Order((first.text, second.text), len(shared), sum(signs) / len(signs), changed))
    return found
