"""What an arm's comparisons are called in a cell or a sentence."""

from poslab.report.aggregate import ArmFigures
from poslab.report.formatting import DASH, multiple, number
from poslab.report.results import Results


def over_reference(item: ArmFigures, suffix: str = "") -> str:
    """Time to target over the reference's with its interval, or what bounds it where runs were cut off."""
    found = item.ratios.get(suffix)
    if found is None:
        return DASH
    if found.kind in ("at_least", "at_most"):
        sign, bound = (">", found.low) if found.kind == "at_least" else ("<", found.high)
        return f"{sign} ×{number(bound, 3)}" + (" (one seed)" if found.n == 1 else "")
    if found.mean is None:
        return DASH
    ends = "" if found.low is None else f" [{number(found.low, 3)}, {number(found.high, 3)}]"
    return f"×{number(found.mean, 3)}{ends}" + (f" (n = {found.n})" if found.n < len(item.rows) else "")


def rank(item: ArmFigures, results: Results) -> str:
    """The places that the arm may have: 1, or 2–4; a dash where nothing is compared."""
    found = results.ranks.get(item.arm.label)
    return DASH if found is None else "–".join(map(str, dict.fromkeys((found.best, found.worst))))


def figure_title(column: str) -> str:
    """loss_8x -> Loss at 8 L."""
    family, k = column.rsplit("_", 1)
    titles = {"loss": "Loss", "sliding": "Sliding loss", "context_gain": "Context gain"}
    return f"{titles[family]} at {multiple(float(k.removesuffix('x')))}"
