"""The section on what the trained schemes do: biases, rotations, and how far back attention reaches."""

from collections.abc import Callable

from poslab.config.text import listing
from poslab.record.scheme import SchemeRecord
from poslab.report.analysis.results import Results
from poslab.report.attended import arms_sheet, attended_heat, attended_table, runs_sheet
from poslab.report.scheme_charts import bias_chart, bound_chart
from poslab.report.section import Section
from poslab.report.sheets import figure
from poslab.report.wavelengths import pairs_sheet, wavelengths_sheet, wavelengths_table

ASKED: dict[str, Callable[[SchemeRecord], object]] = {
    "biases": lambda scheme: scheme.bias,
    "rotations": lambda scheme: scheme.wavelengths,
    "bound of decay": lambda scheme: scheme.bound,
    "attention distance": lambda scheme: scheme.attended or None,
}

COUNTED_FROM = 0  # layers, heads and pairs


def schemes_section(results: Results) -> Section | None:
    """What the schemes do, or None where no record says it."""
    bias, bound, heat = bias_chart(results), bound_chart(results), attended_heat(results)
    turns, reaches = wavelengths_table(results), attended_table(results)
    charts = [chart for chart in (bias, bound, heat) if chart is not None]
    tables = [table for table in (turns, reaches) if table is not None]
    if not charts and not tables:
        return None
    sheets = {}
    if turns is not None:
        sheets["wavelengths"] = figure(wavelengths_sheet(results))
        sheets["wavelength_pairs"] = figure(pairs_sheet(results))
    if reaches is not None:
        sheets["attention_distance_arms"] = figure(arms_sheet(results))
        sheets["attention_distance_runs"] = figure(runs_sheet(results))
    return Section(
        "schemes",
        "What the schemes do",
        "Read from the trained models: what each scheme adds to the logits, how it turns queries and keys, "
        f"and how far back attention then reaches. Layers and heads are counted from {COUNTED_FROM}.",
        _findings(results),
        tuple(charts),
        tuple(tables),
        sheets,
    )


def _findings(results: Results) -> tuple[str, ...]:
    """Which arms add or turn nothing, and what is not on record."""
    arms = [item for item in results.arms if item.rows]
    known = [
        item
        for item in arms
        if any(None not in (r.scheme.bias, r.scheme.wavelengths) for r in item.arm.finished)
    ]
    neither = [
        item.arm.label
        for item in known
        if not any(run.scheme.bias or run.scheme.wavelengths for run in item.arm.finished)
    ]
    said = (
        [f"Neither a bias nor a rotation set by the distance in tokens: {listing(neither)}."]
        if neither
        else []
    )
    for what, of in ASKED.items():
        without = [
            item.arm.label for item in arms if all(of(run.scheme) is None for run in item.arm.finished)
        ]
        if without:
            said.append(f"No {what} on record: {listing(without)}.")
    some = [
        run.name
        for item in arms
        for run in item.arm.finished
        for other in item.arm.finished
        if any(of(run.scheme) is None and of(other.scheme) is not None for of in ASKED.values())
    ]
    if some:
        said.append(
            f"Not on record for every seed of an arm: {listing(list(dict.fromkeys(some)))} lack some."
        )
    return tuple(said)
