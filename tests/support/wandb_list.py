"""The list in docs/wandb.md of what W&B has of one run, and what the stand-in or a file has got of one."""

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from support.commands import ROOT, environment
from support.wandb_server.store import Run

MARK = "<!-- list of a run -->"


def documented() -> dict[str, list[str]]:
    """The names that the page lists, by section; those in brackets need not be there."""
    text = (ROOT / "docs" / "wandb.md").read_text().partition(MARK)[2]
    block = text.partition("```\n")[2].partition("```")[0]
    sections: dict[str, list[str]] = {}
    section = ""
    for line in block.splitlines():
        head, names = line[:10].strip(), line[10:].split()
        section = head or section
        sections.setdefault(section, []).extend(names)
    return sections


def in_file(part: Path) -> list[dict[str, Any]]:
    """The rows of a run's history, as W&B's own reader finds them in its file, which need not have an end."""
    told = subprocess.run(
        [str(Path(sys.executable).parent / "wandb"), "leet", "inspect", "--json", str(part)],
        capture_output=True,
        text=True,
        check=False,
        env=environment(part),
    )
    records = [json.loads(line) for line in told.stdout.splitlines()]
    return [record["history"]["item"] for record in records if record["type"] == "history"]


def pattern(name: str) -> re.Pattern[str]:
    """Of the names that a name on the page stands for; `<...>` is anything but a separator."""
    parts = re.split(r"<[^>]+>", name.strip("[]"))
    return re.compile(r"[^/]+".join(map(re.escape, parts)))


def sent(run: Run) -> dict[str, set[str]]:
    """The names of all that the stand-in has of a run, by the page's sections."""
    history = {key for row in run.history for key in row}
    return {
        "config": set(_dotted(run.config)),
        "history": history,
        "summary": set(run.summary),
        "tables": {key.removeprefix("tables/") for key in history if key.startswith("tables/")},
        "artifacts": {each.collection for each in [*run.logged, *run.used]},
        "files": set(run.files),
    }


def _dotted(settings: Mapping[str, Any]) -> Iterator[str]:
    for key, value in settings.items():
        yield from (f"{key}.{name}" for name in value) if isinstance(value, dict) and value else [key]


def unlisted(names: Iterable[str], listed: list[str]) -> list[str]:
    """Those of `names` that the page does not list."""
    patterns = [pattern(each) for each in listed]
    return [name for name in names if not any(each.fullmatch(name) for each in patterns)]


def unsent(names: Iterable[str], listed: list[str]) -> list[str]:
    """What the page lists without brackets and is not among `names`."""
    there = list(names)
    return [
        each
        for each in listed
        if not each.startswith("[") and not any(pattern(each).fullmatch(name) for name in there)
    ]
