"""Which runs a filter of W&B's client names, and in what order."""

import re
from collections.abc import Callable
from typing import Any

from support.wandb_server.graphql import Unanswered
from support.wandb_server.store import Run

COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "$eq": lambda held, asked: held == asked,
    "$ne": lambda held, asked: held != asked,
    "$gt": lambda held, asked: held is not None and held > asked,
    "$gte": lambda held, asked: held is not None and held >= asked,
    "$lt": lambda held, asked: held is not None and held < asked,
    "$lte": lambda held, asked: held is not None and held <= asked,
    "$in": lambda held, asked: any(each in asked for each in _many(held)),
    "$nin": lambda held, asked: not any(each in asked for each in _many(held)),
    "$exists": lambda held, asked: (held is not None) == asked,
    "$regex": lambda held, asked: held is not None and re.search(asked, held) is not None,
}


def _many(held: Any) -> list[Any]:
    return held if isinstance(held, list) else [held]


def _held(run: Run, key: str) -> Any:
    """What a filter's or an order's key names."""
    first, _, rest = key.partition(".")
    if first in ("config", "summary_metrics"):
        value: Any = run.config if first == "config" else run.summary
        for part in rest.removesuffix(".value").split("."):
            value = value.get(part) if isinstance(value, dict) else None
        return value
    columns: dict[str, Any] = {
        "name": run.name,
        "display_name": run.display_name,
        "displayName": run.display_name,
        "group": run.group,
        "job_type": run.job_type,
        "jobType": run.job_type,
        "state": run.state,
        "tags": run.tags,
        "sweep": run.sweep,
        "created_at": run.number,
        "createdAt": run.number,
    }
    if first not in columns:
        raise Unanswered(f"a run's column {key!r}")
    return columns[first]


def matches(run: Run, filters: dict[str, Any]) -> bool:
    def holds(key: str, asked: Any) -> bool:
        if key == "$and":
            return all(matches(run, each) for each in asked)
        if key == "$or":
            return any(matches(run, each) for each in asked)
        held = _held(run, key)
        if isinstance(asked, dict):
            if unknown := set(asked) - set(COMPARISONS):
                raise Unanswered(f"a filter {sorted(unknown)}")
            return all(COMPARISONS[each](held, value) for each, value in asked.items())
        return asked in held if isinstance(held, list) else held == asked

    return all(holds(key, asked) for key, asked in filters.items())


def ordered(runs: list[Run], order: str) -> list[Run]:
    key = order.lstrip("+-")
    present = [run for run in runs if _held(run, key) is not None]
    absent = [run for run in runs if _held(run, key) is None]
    return sorted(present, key=lambda run: _held(run, key), reverse=order.startswith("-")) + absent
