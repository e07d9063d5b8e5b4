"""The claims judged and written: index.html, claims.md, claims.csv and figures."""

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
    """Every claim of the ledger with its judgement, by number."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the sums of small tensors are split among threads, differently by machine
    try:
        return tuple(Entry(claim, judge(claim, studies)) for claim in ledger())
    finally:
        torch.set_num_threads(threads)


def rendered(entries: tuple[Entry, ...], studies: Studies) -> dict[str, bytes]:
    """The files of the page by their names."""
    drawn = {figure.name: svg(figure) for entry in entries for figure in entry.judgement.figures}
    return {
        "index.html": html(entries, drawn, studies.unreadable).encode(),
        "claims.md": markdown(entries, studies.unreadable).encode(),
        "claims.csv": table(entries).encode(),
        **{f"{FIGURES}/{name}.svg": content for name, content in drawn.items()},
    }


def write(runs: Path, reports: Path) -> tuple[Path, tuple[Entry, ...], Studies]:
    """Judge all claims and write `reports`/claims; return folder, entries and studies. Raises OSError."""
    folder = reports / "claims"
    if (folder / "facts.csv").exists():
        why = "is the report of a study of that name; give another folder with reports="
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
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    new.write_bytes(content)
    os.replace(new, path)
