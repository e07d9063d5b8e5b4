"""Judge the claims and write index.html, claims.md, claims.csv and the figures."""

import errno
import os
from pathlib import Path

import torch

from claims.contract import judge, ledger
from claims.drawing import svg
from claims.page import Entry, html, markdown, table
from claims.studies import Studies

FIGURES = "figures"


def judged(studies: Studies) -> tuple[Entry, ...]:
    """Return every claim of the ledger with its judgement, ordered by number."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # with several, the order of a sum differs between machines
    try:
        return tuple(Entry(claim, judge(claim, studies)) for claim in ledger())
    finally:
        torch.set_num_threads(threads)


def rendered(entries: tuple[Entry, ...], studies: Studies) -> dict[str, bytes]:
    """Return the content of each file of the page by its name."""
    drawn = {figure.name: svg(figure) for entry in entries for figure in entry.judgement.figures}
    return {
        "index.html": html(entries, drawn, studies.unreadable).encode(),
        "claims.md": markdown(entries, studies.unreadable).encode(),
        "claims.csv": table(entries).encode(),
        **{f"{FIGURES}/{name}.svg": content for name, content in drawn.items()},
    }


def write(runs: Path, reports: Path) -> tuple[Path, tuple[Entry, ...], Studies]:
    """Judge all claims and write `reports`/claims; return the page, entries and studies. Raise OSError."""
    folder = reports / "claims"
    if (folder / "facts.csv").exists():
        why = "holds the report of a study named claims; choose another folder with reports="
        raise FileExistsError(errno.EEXIST, why, str(folder))
    studies = Studies(runs, reports)
    entries = judged(studies)
    content = rendered(entries, studies)
    for name, data in content.items():
        _replace(folder / name, data)
    for stale in (folder / FIGURES).glob("*.svg"):
        if f"{FIGURES}/{stale.name}" not in content:
            stale.unlink()
    return folder / "index.html", entries, studies


def _replace(path: Path, content: bytes) -> None:
    """Replace a file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    new.write_bytes(content)
    os.replace(new, path)
