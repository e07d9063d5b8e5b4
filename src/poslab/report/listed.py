"""The lists of the reports in a folder, as two pages beside them.

index.html has those with archived records, and the ledger of claims. In a checkout it is in git: it names no
date and no report of this machine, so that a command does not change it, and leads to report.md, since git
has no page. Pages that are in the folder are listed in local.html; each list links to the other.
"""

import csv
from collections import Counter
from pathlib import Path
from typing import Any

from poslab.config.text import counted, plain
from poslab.record.archive import ARCHIVE
from poslab.record.files import write_atomic

PICTURE = "answer.png"  # the first figure of a report
PAGE = "index.html"  # of a report
LIST = "index.html"
LOCAL = "local.html"
CLAIMS = "claims"  # the folder of the ledger


def write_list(reports: Path) -> None:
    """Write both lists of `reports`; what has not changed is left as it is."""
    for name, text in list_pages(reports).items():
        path = reports / name
        if not path.is_file() or path.read_bytes() != text.encode():
            write_atomic(path, text)


def list_pages(reports: Path) -> dict[str, str]:
    """Return both lists by file name: archived reports by name, pages with the latest first."""
    # Here, since a finished study that is asked for again needs none of it.
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
    """Return the number of claims by verdict; None where the folder has no ledger."""
    if (folder / "facts.csv").exists():  # the report of a study of that name
        return None
    try:
        rows = [row for row in _rows(folder / "claims.csv") if row["kind"] == "finding" and not row["part"]]
    except (OSError, KeyError, ValueError, csv.Error):
        return None
    verdicts = Counter(row["verdict"] for row in rows).most_common()
    found = ", ".join(f"{plain(verdict, 40)} {n}" for verdict, n in verdicts)
    return f"{counted(len(rows), 'claim')} by verdict: {found}"


def _read(folder: Path) -> dict[str, Any] | None:
    """Return a report's entry from its files; None where they are incomplete."""
    try:
        facts = dict(reversed([(row["key"], row["value"]) for row in _rows(folder / "facts.csv")]))
        summary = folder / "summary.csv"  # git has none of what it archives
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
        "date": max(ended, default="")[:10],  # on which its last run ended
        "command": facts.get("report_command", ""),  # which writes the report again
        "picture": (folder / PICTURE).is_file(),
        "archived": (folder / ARCHIVE).is_file(),
        "page": (folder / PAGE).is_file(),
    }


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
