"""A study on several texts: how far they agree on each arm's difference from the reference, and on the order.

Losses on different texts do not compare, in nats or in bits; differences of arms on one text do, paired by
seed. Nothing here is a mean over texts: it takes five or more for an interval that is worth printing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from poslab.analysis.comparisons import Comparison, alike
from poslab.analysis.results import Results
from poslab.record.measures import is_in_bits


@dataclass(frozen=True)
class Agreement:
    """An arm's difference from the reference on one figure, for each text that has it."""

    arm: str
    figure: str
    comparisons: tuple[Comparison | None, ...]  # one for each text of the study, in order

    @property
    def means(self) -> list[float]:
        """The mean differences in the figure's unit, sorted."""
        return sorted(item.difference.mean for item in self.comparisons if item is not None)

    @property
    def lower(self) -> int:
        """The number of texts with a mean difference below 0."""
        return sum(mean < 0 for mean in self.means)

    def separated(self, side: str) -> int:
        """Return on how many texts the test, corrected over all texts, reads `side` ("lower" or "higher")."""
        return sum(item is not None and item.reading.startswith(side) for item in self.comparisons)


def agreements(texts: Sequence[Results], figure: str) -> list[Agreement]:
    """Return how far the texts agree on a figure, for each arm that is compared on at least one of them.

    Arms with another size or budget than the reference are left out.
    """
    labels = dict.fromkeys(item.arm.label for text in texts for item in text.comparisons)
    by_text = []
    for text in texts:
        group = {item.arm.label for item in text.beside_reference}
        chosen = (item for item in text.comparisons if item.figure == figure and item.arm.label in group)
        by_text.append({item.arm.label: item for item in chosen})
    by_label = {label: tuple(compared.get(label) for compared in by_text) for label in labels}
    return [Agreement(label, figure, compared) for label, compared in by_label.items() if any(compared)]


@dataclass(frozen=True)
class Order:
    """How far two texts agree on the order of the arms, by mean loss over the seeds."""

    texts: tuple[str, str]
    arms: int
    tau: float  # Kendall's tau: 1 for the same order, -1 for the reverse
    changed: tuple[tuple[str, str], ...]  # the first is lower on the first text, and higher on the second


def orders(texts: Sequence[Results], figure: str) -> list[Order]:
    """Return the agreement of each pair of texts that share two or more comparable arms with this figure.

    Kendall's tau (1938) is the number of concordant less discordant pairs of arms, over that of all pairs.
    """
    listed = []
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
        listed.append(Order((first.text, second.text), len(shared), sum(signs) / len(signs), changed))
    return listed
