"""Two pages that list the reports in a folder.

index.html lists the reports with archived records, and the ledger of claims. In a checkout it is in git, so
it has no dates and no reports of this machine: commands do not change it. It links to report.md, since git
has no pages. local.html lists the reports in the folder that have a page; the two lists link to each other.
"""

import csv
from collections import Counter
from pathlib import Path
from typing import Any

from poslab.config.text import counted, plain
from poslab.record.archive import ARCHIVE
from poslab.record.files import write_atomic

PICTURE = "answer.png"  # the first figure of a report
PAGE = "index.html"  # the page of a report
LIST = "index.html"
LOCAL = "local.html"
CLAIMS = "claims"  # the folder of the ledger of claims


def write_list(reports: Path) -> None:
    """Write both lists of the folder `reports`. A list that has not changed is not written again."""
    for name, text in list_pages(reports).items():
        path = reports / name
        if not path.is_file() or path.read_bytes() != text.encode():
            write_atomic(path, text)


def list_pages(reports: Path) -> dict[str, str]:
    """Return both lists by file name: archived reports in order of name, pages from latest to earliest."""
    # Imported here, since a command for a study that is already finished does not need it.
    from poslab.report.render.page import templates

    listed = list(filter(None, (_read(path.parent) for path in sorted(reports.glob("*/facts.csv")))))
    local = [report for report in listed if report["page"]]
    local.sort(key=lambda report: report["date"], reverse=True)
    template = templates(autoescape=True, trim_blocks=True, lstrip_blocks=True).get_template("list.html")
    archived = [report for report in listed if report["archived"]]
    return {
        LIST: template.render(local=False, own=LOCAL, reports=archived, claims=_claims(reports / CLAIMS)),
        LOCAL: template.render(local=True, archived=LIST, reports=local, claims=None),
    }


def _claims(folder: Path) -> str | None:
    """Return the number of claims by verdict, or None if the folder has no ledger."""
    if (folder / "facts.csv").exists():  # the report of a study with that name
        return None
    try:
        rows = [row for row in _rows(folder / "claims.csv") if row["kind"] == "finding" and not row["part"]]
    except (OSError, KeyError, ValueError, csv.Error):
        return None
    verdicts = Counter(row["verdict"] for row in rows).most_common()
    counts = ", ".join(f"{plain(verdict, 40)} {n}" for verdict, n in verdicts)
    return f"{counted(len(rows), 'claim')} by verdict: {counts}"


def _read(folder: Path) -> dict[str, Any] | None:
    """Return the entry of a report, read from its files, or None if they are incomplete."""
    try:
        facts = dict(reversed([(row["key"], row["value"]) for row in _rows(folder / "facts.csv")]))
        summary = folder / "summary.csv"  # absent from the archived reports in git
        ended = [row["finished"] for row in _rows(summary)] if summary.exists() else []
    except (OSError, KeyError, ValueError, csv.Error):
        return None
    title = facts.get("title", folder.name)
    compared = facts.get("compared", "")
    return {
        "folder": folder.name,
        "title": title,
        "compared": "" if compared == title else compared,
        "answer": facts.get("answer", ""),  # the first sentence
        "runs": f"{(runs := facts.get('runs_finished', 'no'))} finished run{'' if runs == '1' else 's'}",
        "date": max(ended, default="")[:10],  # when its last run ended
        "command": facts.get("report_command", ""),  # writes the report again
        "picture": (folder / PICTURE).is_file(),
        "archived": (folder / ARCHIVE).is_file(),
        "page": (folder / PAGE).is_file(),
    }


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
