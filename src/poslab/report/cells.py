"""What an arm's comparisons are called in a cell or a sentence."""

from poslab.report.analysis.estimates import ArmFigures
from poslab.report.analysis.results import Results
from poslab.report.analysis.statistics import Estimate
from poslab.report.formatting import DASH, interval, multiple, number


def fewer(n: int, item: ArmFigures) -> str:
    """Of how many seeds a figure is, where not all finished ones of the arm have it."""
    return f" (n = {n})" if n < len(item.rows) else ""


def mean_cell(found: Estimate | None, item: ArmFigures, digits: int = 4, sign: bool = False) -> str:
    """The mean over an arm's seeds with its interval."""
    if found is None:
        return DASH
    return interval(found.mean, found.half_width, digits, sign) + fewer(found.n, item)


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
    return f"×{number(found.mean, 3)}{ends}{fewer(found.n, item)}"


def rank(item: ArmFigures, results: Results) -> str:
    """The places that the arm may have: 1, or 2–4; a dash where nothing is compared."""
    found = results.ranks.get(item.arm.label)
    return DASH if found is None else "–".join(map(str, dict.fromkeys((found.best, found.worst))))


def figure_title(column: str) -> str:
    """loss_8x -> Loss at 8 L."""
    family, k = column.rsplit("_", 1)
    titles = {"loss": "Loss", "sliding": "Sliding loss", "context_gain": "Context gain"}
    return f"{titles[family]} at {multiple(float(k.removesuffix('x')))}"
