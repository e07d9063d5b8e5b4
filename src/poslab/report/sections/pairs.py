"""Ranks, pairs.csv and claims.csv: arms two by two in both protocols, and all tests of the verdict."""

from poslab.analysis.comparisons import mean_ranks
from poslab.analysis.results import Results
from poslab.report import cells
from poslab.report.charts import Place, RankChart

MANY = 30  # arms


def rank_chart(results: Results) -> list[RankChart]:
    """The places of the arms in the tested loss; nothing with one seed, of two arms or of very many."""
    if results.primary is None or not 3 <= len(results.ranks) <= MANY:
        return []
    looks = cells.looks(results)
    ranked = [item for item in results.arms if item.arm.label in results.ranks]
    means = mean_ranks(ranked, results.primary)
    places = [
        Place(looks[label], label, mean, results.ranks[label].best, results.ranks[label].worst)
        for label, mean in means.items()
    ]
    caption = (
        f"By the {cells.figure_words(results.primary)}: the dot is an arm's mean rank over the seeds that "
        "all arms have, the bar the places that the tests leave it. Arms whose bars overlap may change "
        "places; a bar no longer than one place is a rank that is claimed."
    )
    ordered = tuple(sorted(places, key=lambda one: (one.mean, one.best)))
    return [RankChart("ranks", "Ranks", caption, ordered)] if ordered else []
