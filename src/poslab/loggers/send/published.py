"""Which report of a study W&B has, by its digest. W&B's client is not imported: that takes a second."""

import hashlib
from pathlib import Path
from typing import Any

from poslab.loggers.send.login import requested_place
from poslab.loggers.wandb import WandbOptions
from poslab.record.schema import STUDY_LIST
from poslab.record.seal import DamagedError, read_sealed

PLACE = ".report_run.json"  # in the study's folder: the report's W&B run and the digest of that report


def is_published(options: WandbOptions, runs: Path, report: Path) -> bool:
    """Return whether W&B has the current report in the folder `report`; `runs` is the study's folder."""
    return known_place(runs).get("digest") == report_digest(options, runs, report)


def known_place(runs: Path) -> dict[str, Any]:
    """Return the record of the report's run in W&B; empty if it is damaged or belongs to another study."""
    try:
        place = read_sealed(runs / PLACE)
    except (FileNotFoundError, DamagedError):
        return {}
    return place if place.get("study", runs.name) == runs.name else {}


def report_digest(options: WandbOptions, runs: Path, report: Path) -> str:
    """Return the SHA-256 of a report, its study's list and their place in W&B."""
    digest = hashlib.sha256(repr(sorted(requested_place(options).items())).encode())
    for path in (*report_files(report), runs / STUDY_LIST):
        digest.update(f"{path.name}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


def report_files(report: Path) -> list[Path]:
    """Return the files of a report to send to W&B."""
    return sorted(path for path in report.rglob("*") if path.is_file() and not path.name.startswith("."))
