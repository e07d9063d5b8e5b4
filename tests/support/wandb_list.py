"""The list in docs/wandb.md of the data that W&B has of a run, and the data in the stand-in or a file."""

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from wandb.util import get_core_path

from support.commands import ROOT, environment
from support.wandb_server.store import Run

MARK = "<!-- list of a run -->"


def documented() -> dict[str, list[str]]:
    """Return the names listed on the page, by section; those in brackets are optional."""
    text = (ROOT / "docs" / "wandb.md").read_text().partition(MARK)[2]
    block = text.partition("```\n")[2].partition("```")[0]
    sections: dict[str, list[str]] = {}
    section = ""
    for line in block.splitlines():
        head, names = line[:10].strip(), line[10:].split()
        section = head or section
        sections.setdefault(section, []).extend(names)
    return sections


def leet(files: Path, *flags: str) -> str:
    """Return the files of a run, which may be incomplete, as JSON from W&B's own reader.

    It is called as by `wandb leet inspect`, which takes two seconds for imports that are not needed here.
    """
    (file,) = files.resolve().glob("run-*.wandb")
    reader = [get_core_path(), "leet", "inspect", "--no-observability", "--json", *flags]
    asked = [*reader, "--run-file", str(file), str(file.parent.parent)]
    return subprocess.run(asked, capture_output=True, text=True, check=False, env=environment(files)).stdout


def in_file(part: Path) -> list[dict[str, Any]]:
    """Return the rows of a run's history in its file."""
    records = map(json.loads, leet(part).splitlines())
    return [record["history"]["item"] for record in records if record["type"] == "history"]


def stands_for(listed: str, name: str) -> bool:
    """Return whether a name on the page matches `name`; `<...>` matches anything except a separator."""
    return bool(re.fullmatch(re.sub("<[^>]+>", "[^/]+", re.escape(listed.strip("[]"))), name))


def sent(run: Run) -> dict[str, set[str]]:
    """Return the names of everything that the stand-in has of a run, by the page's sections."""
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
