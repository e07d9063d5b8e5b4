"""A made-up study, and the parts of its W&B workspace and Report."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from poslab.record.files import write_sealed
from support.records import (
    FLAT,
    add_rescaled,
    answers,
    biases,
    bounds,
    reaches,
    write_run,
    write_scheme,
)

QUESTION = "Does **it** work? [click](http://evil.example) <script>alert(1)</script>\x1b[31m"

STUDY = "made_up"


def write_study(runs: Path, study: str = STUDY) -> None:
    """Write two arms with two seeds and all measurements, a trial, and a failed run."""
    probe = answers({(1.0, 0.0): 9, (4.0, 0.5): 2}) + answers({(1.0, 0.0): 5}, "copy")
    bias = biases([0.5, 0.25], [0, 1, 2]) + biases([0.5, 0.25], [0, 1, 2], layer=1)
    for seed in (0, 1):
        shared = {"seed": seed, "study": study, "distance": reaches([[1.0, 2.0], [2.0, 3.0]])}
        write_scheme(runs, f"alibi{seed}", probe, pos="alibi", bias=bias, **shared)
        rope = write_scheme(runs, f"rope{seed}", bound=bounds({0: 1.0, 1: 0.9}), **shared)
        add_rescaled(rope, {"yarn": (FLAT, 2.0)})
    write_run(runs, "trial", seed=9, study=study, config={"part": "tuning"})
    write_run(runs, "failed", pos="t5", study=study, status="failed", reason="a reason")
    names = ["alibi0", "alibi1", "rope0", "rope1", "trial", "failed"]
    write_sealed(runs / study / "study.json", {"study": study, "runs": names, "question": QUESTION})


def specification(document: Any) -> dict[str, Any]:
    """Return the part of a workspace or Report that is sent to W&B, as JSON."""
    sent = document._to_model().spec
    found: dict[str, Any] = json.loads(sent.model_dump_json(by_alias=True, exclude_none=True))
    return found


def sections(spec: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Return the panels of a workspace or report by section name."""
    if "section" in spec:
        return {part["name"]: part["panels"] for part in spec["section"]["panelBankConfig"]["sections"]}
    heading, found = "", {}
    for block in spec["blocks"]:
        if block["type"] == "heading":
            heading = block["children"][0]["text"]
        if block["type"] == "panel-grid":
            found[heading] = block["metadata"]["panelBankSectionConfig"]["panels"]
    return found


def run_sets(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from spec.get("section", {}).get("runSets", [])
    for block in spec.get("blocks", []):
        yield from block.get("metadata", {}).get("runSets", [])
