"""Ranks, pairs.csv and claims.csv: arms two by two in both protocols, and all tests of the verdict."""

from poslab.analysis.comparisons import mean_ranks
from poslab.analysis.protocols import BothProtocols, counterpart
from poslab.analysis.results import Results
from poslab.analysis.statistics import Difference
from poslab.report import cells
from poslab.report.charts import Place, RankChart
from poslab.report.tables import Row, Rows, Sheet

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


def pairs_sheet(results: Results) -> Sheet:
    """pairs.csv: an arm less another, paired by seed, on the primary figure; what the ranks are made of.

    Beside it the same two arms in the other protocol, and whether they change places between the two.
    """
    columns = ["arm", "other", "figure", "n", "mean", "half_width", "p", "p_holm", "separated"]
    columns += [f"counterpart{end}" for end in ("", "_n", "_mean", "_half_width")]
    columns += ["change_p_holm", "changes_places"]
    beside = {id(both.pair): both for both in results.both_protocols}
    rows: Rows = [
        {
            "arm": pair.arm.label,
            "other": pair.other.label,
            "figure": results.primary,
            **paired(pair.difference),
            "p_holm": pair.p_holm,
            "separated": pair.separated,
            **_beside(beside.get(id(pair)), results),
        }
        for pair in results.pairs
    ]
    return columns, rows


def _beside(both: BothProtocols | None, results: Results) -> Row:
    if both is None or results.primary is None:
        return {}
    return {
        "counterpart": counterpart(results.primary),
        **{f"counterpart_{end}": value for end, value in paired(both.beside).items() if end != "p"},
        "change_p_holm": both.change_p_holm,
        "changes_places": both.changes_places,
    }


def paired(difference: Difference) -> Row:
    """What every sheet of differences has of one."""
    return {end: getattr(difference, end) for end in ("n", "mean", "half_width", "p")}


def claims_sheet(results: Results) -> Sheet:
    """claims.csv: a row a test that the verdict rests on, with its share of the family's false alarms."""
    columns = ["part", "figure", "arm", "other", "n", "p", "weight", "p_holm", "claimed"]
    every = [{**vars(test), "part": test.group.label, "claimed": test.holds} for test in results.claims]
    return columns, [{key: one[key] for key in columns} for one in every]
