"""The name, tags and settings of a run in W&B."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from poslab.config.request import Request

LONGEST_TAG, LONGEST_NAME = 64, 128  # characters that W&B takes


@dataclass(frozen=True)
class Card:
    """A run's row in W&B's tables."""

    group: str  # the study
    job_type: Literal["train", "evaluate", "report"]
    name: str
    tags: tuple[str, ...]
    notes: str | None
    config: Mapping[str, Any]


def arm(request: Request) -> str:
    """One name for all runs that differ in their seed alone, whatever command they are from."""
    parts = (request.pos, request.attention, " ".join(request.non_default_settings), request.trial)
    return " / ".join(part for part in parts if part)


def of_run(request: Request, title: str, identity: str, code: str, data_fingerprint: str) -> Card:
    """The card of a training run, with its settings by their names on the command line.

    `pos` and `attention` are the names of the options, not their sections: they can be sorted and filtered
    by, and are what a W&B sweep sets.
    """
    config = request.config
    settings = config.result_settings()
    sections = {f"{name}_options": settings.pop(name) for name in ("pos", "attention")}
    columns = {
        "study": config.study,
        "arm": arm(request),
        "pos": request.pos,
        "attention": request.attention,
        **settings,
        **sections,
        "identity": identity,
        "code": code,
        "data_fingerprint": data_fingerprint,
    }
    tags = [request.pos, request.attention, str(config.data.get("source", "")), config.part]
    return Card(
        group=config.study,
        job_type="train",
        name=title[:LONGEST_NAME],
        tags=tuple(dict.fromkeys(tag[:LONGEST_TAG] for tag in tags if tag and tag != "comparison")),
        notes=config.question,
        config=columns,
    )
