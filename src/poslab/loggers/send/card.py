"""The name, tags and settings of a run in W&B."""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from poslab.config.request import Request
from poslab.config.text import one_line, plain, published, visible

LONGEST_TAG, LONGEST_NAME = 64, 128  # characters: W&B's limits
LONGEST_NOTES = 500  # characters: the limit of a study's question


@dataclass(frozen=True)
class Card:
    """A run's row in W&B's tables."""

    group: str  # the study
    job_type: Literal["train", "evaluate", "report"]
    name: str
    tags: tuple[str, ...]
    notes: str | None
    config: Mapping[str, Any]


def as_sent(card: Card, tags: Iterable[str] = ()) -> Card:
    """Return the card with the values of W&B's variables and added `tags`, in texts that W&B accepts.

    Texts are cut to W&B's limits, without control characters and without empty or duplicate tags. Local paths
    are cut to their last component.
    """
    variables = os.environ if card.job_type != "report" else {}
    texts = (one_line(tag, LONGEST_TAG).strip() for tag in (*card.tags, *tags))
    notes = card.notes or variables.get("WANDB_NOTES")
    return replace(
        card,
        group=one_line(os.environ.get("WANDB_RUN_GROUP") or card.group, LONGEST_NAME),
        name=one_line(variables.get("WANDB_NAME") or card.name, LONGEST_NAME),
        tags=tuple(dict.fromkeys(text for text in texts if text)),
        notes=notes and plain(notes, LONGEST_NOTES),
        config=visible(published(dict(card.config))),
    )


def artifact_name(name: str) -> str:
    """Return `name` for an artifact: in characters that W&B allows, and cut to leave room for a prefix."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)[-110:]


def arm(request: Request) -> str:
    """Return the arm's name: the same for all runs that differ only in their seed, from any command."""
    parts = (request.pos, request.attention, " ".join(request.non_default_settings), request.trial)
    return " / ".join(part for part in parts if part)


def settings_of(
    study: str, arm: str, pos: str, attention: str, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a run's settings for W&B, by their command-line names.

    `pos` and `attention` are the names of the options, not their sections: W&B's tables sort and filter by
    them, and a W&B sweep sets them.
    """
    named = {"study": study, "arm": arm, "pos": pos, "attention": attention}
    sections = {f"{name}_options": settings[name] for name in ("pos", "attention")}
    return {**settings, **named, **sections}


def of_run(request: Request, identity: str, code: str, data_fingerprint: str) -> Card:
    """Return the card for a training run."""
    config = request.config
    settings = settings_of(
        config.study, arm(request), request.pos, request.attention, config.result_settings()
    )
    if request.start:
        settings |= {"from": request.start.arm, "from_run": request.start.run}
    settings |= {"identity": identity, "code": code, "data_fingerprint": data_fingerprint}
    tags = [request.pos, request.attention, str(config.data.get("source", "")), config.part]
    return Card(
        group=config.study,
        job_type="train",
        name=request.title,
        tags=tuple(tag for tag in tags if tag != "comparison"),
        notes=config.question,
        config=settings,
    )
