"""Models that poslab measured but did not train: their losses, with intervals over documents."""

from collections.abc import Iterator

from poslab.analysis.by_document import FAMILY, by_document
from poslab.analysis.results import Results
from poslab.analysis.sheets import Row
from poslab.config.text import listing
from poslab.record.measures import name
from poslab.record.summary import is_pretrained
from poslab.report import cells
from poslab.report.document import Section, sheets_of
from poslab.report.formatting import count, multiple
from poslab.report.tables import Column, Table
from poslab.report.verdict import NAMED


def sentences(results: Results) -> Iterator[str]:
    """Yield the bits per byte of each model at its L, with half the interval over documents."""
    losses = []
    for item in results.arms:
        for run in item.arm.finished:
            bits = cells.loss(by_document(run, (1.0,))[0], f"{FAMILY}_{name(1.0)}").text
            losses.append(f"{item.arm.label} {bits} (L = {count(run.context_length)})")
    if losses:
        yield f"Bits per byte of models as published, at L in sliding windows: {listing(losses, NAMED)}."


def section(results: Results) -> Section | None:
    """Return the table of pretrained models by rotation, or None if there are no such models."""
    rows: list[Row] = [
        {"arm": item.arm.label, **row}
        for item in results.arms
        for run in item.arm.finished
        if is_pretrained(run)
        for row in by_document(run, results.multiples)
    ]
    if not rows:
        return None
    rescaled = any(len(run.rescalings) for run in results.finished if is_pretrained(run))
    further = [k for k in results.multiples if k >= 1] if rescaled else []
    columns = (
        cells.arm_column(results),
        cells.words("line", "Rotation"),
        *(Column(f"{FAMILY}_{name(k)}", multiple(k), cells.loss, "Bits per byte") for k in results.multiples),
        *(Column(f"change_{name(k)}", multiple(k), cells.nats, "Change from as trained") for k in further),
    )
    caption = (
        "In sliding windows, with 95 % t intervals over the scored documents, which are paired for a change. "
        "Bits per byte are comparable between tokenizers on one text, but models with other tokenizers or "
        "training lengths are scored on other parts of it. Each line is one model, so no interval covers "
        "what another training run would give."
    )
    table = Table("Pretrained models", caption, columns, rows, ("pretrained.csv",), grouped=True)
    return Section("pretrained", "Pretrained models", tables=(table,), sheets=sheets_of(table))
