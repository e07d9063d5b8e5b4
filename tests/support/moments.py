"""Moments of a running study at which a test kills or stops it."""

import json
import random
import time
from collections.abc import Callable
from pathlib import Path

from poslab.record.manifest import read_manifest
from support.forks import Forked
from support.processes import PATIENCE

# Moments that polling every 10 ms could miss; polled from the next step, or the end of a run, onwards.
BRIEF = ("checkpoint", "row", "report")
FINISHED = 120  # the number of steps that a finished run counts as; at least its own


def await_moment(moment: str, cwd: Path, study: Forked, chance: random.Random) -> bool:
    """Wait for the moment; return whether it came while the study ran."""
    begun, since = time.monotonic(), time.time()
    after = chance.uniform(0, 3)  # a study of a few steps may end in five
    steps = _steps(cwd)
    more = chance.randrange(2, 12)
    sizes = _sizes(cwd)
    come: dict[str, Callable[[], bool]] = {
        "start": lambda: time.monotonic() - begun > after,
        "step": lambda: _steps(cwd) >= steps + more,
        "training": lambda: "training" in _phases(cwd, since) and chance.random() < 0.8,
        "checkpoint": lambda: any(cwd.glob("runs/killed/*/checkpoints/.*.pt.*")),
        "row": lambda: any(cwd.glob("runs/killed/*/.metrics.csv.*")),
        "wandb": lambda: _sizes(cwd) != sizes,
        "evaluation": lambda: "evaluating" in _phases(cwd, since),
        "finish": lambda: any(map(_is_finishing, cwd.glob("runs/killed/[!.]*-seed*"))),
        "report": lambda: any(cwd.glob("reports/killed/**/.*")),
    }
    near = moment not in BRIEF
    while study.poll() is None:
        try:
            near = near or (_finished(cwd) if moment == "report" else _steps(cwd) > steps)
            if near and come[moment]():
                return True
        except FileNotFoundError:  # a folder that was removed during the search
            continue
        assert time.monotonic() - begun < PATIENCE, moment
        time.sleep(0.001 if near and moment in BRIEF else 0.05)
    return False


def _is_finishing(run: Path) -> bool:
    """Return whether W&B receives the rest of a run: all is measured, but its record is open."""
    manifest = read_manifest(run) if (run / "attention_distance.csv").exists() else None
    return manifest is not None and manifest.status == "running"


def _steps(cwd: Path) -> int:
    """Return the steps of all runs together, by their checkpoints."""
    reached: dict[Path, int] = {}
    for path in cwd.glob("runs/killed/*/checkpoints/*.pt"):
        reached[path.parent] = max(reached.get(path.parent, 0), int(path.name[:8]))
    return sum(reached.values()) + FINISHED * _finished(cwd)


def _finished(cwd: Path) -> int:
    """Return the number of trained and measured runs."""
    return sum(1 for _ in cwd.glob("runs/killed/*/checkpoint.pt"))


def _sizes(cwd: Path) -> dict[Path, int]:
    try:
        return {path: path.stat().st_size for path in cwd.glob("runs/killed/*/wandb/*/*.wandb")}
    except FileNotFoundError:  # removed during the search
        return {}


def _phases(cwd: Path, since: float) -> set[str]:
    """Return the phases that runs have reported since then, so without those of stopped processes."""
    phases = set()
    for path in cwd.glob("runs/killed/*/progress.json"):
        try:
            if path.stat().st_mtime < since:
                continue
            phases.add(json.loads(path.read_text())["phase"])
        except (FileNotFoundError, ValueError):
            continue
    return phases
