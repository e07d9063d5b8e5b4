"""An evaluation as a W&B run of its own, beside the run whose model it evaluates."""

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from poslab.config import LoggerOptions
from poslab.report import sums
from poslab.report.measures import mean_bits, mean_loss
from poslab.tracking import _settings, logged_in

PROTOCOLS = {"non_overlapping": "", "sliding": "sliding_"}


def mirror(
    options: LoggerOptions, directory: Path, manifest: Mapping[str, Any], artifact: str | None
) -> Mapping[str, Any] | None:
    """Log a sealed evaluation once, and say where it is; None where it is there already or W&B failed.

    The record does not need it: a failure is said and costs nothing else.
    """
    if options.name == "local" or manifest.get("wandb"):
        return None
    try:
        return _mirrored(options, directory, manifest, artifact)
    except Exception as error:  # the server, a full disk, a setting of W&B's own that is wrong
        print(f"W&B failed, the evaluation is recorded without it: {error}", file=sys.stderr)
        return None


def _mirrored(
    options: LoggerOptions, directory: Path, manifest: Mapping[str, Any], artifact: str | None
) -> Mapping[str, Any]:
    import wandb

    mode = os.environ.get("WANDB_MODE") or ("online" if logged_in() else "offline")
    number = f"evaluate-{directory.name.rpartition('-')[2]}"
    config = manifest["config"]
    named = {"pos": manifest["pos"], "pos_options": config["pos"], "attention": manifest["attention"]}
    named |= {"attention_options": config["attention"], "arm": f"{manifest['pos']} / {manifest['attention']}"}
    arguments: dict[str, Any] = {
        "project": options.project,
        "entity": options.entity,
        "dir": directory,
        "id": number,
        "resume": "allow",
        "group": manifest["study"],
        "job_type": "evaluate",
        "name": f"{named['arm']} / seed {manifest['seed']}",
        "config": {**config, **named, "study": manifest["study"], "run": manifest["run"]},
        "settings": _settings(),
    }
    try:
        run = wandb.init(**arguments, mode=mode)  # type: ignore[arg-type]
    except wandb.errors.Error:
        if mode != "online":
            raise
        mode = "offline"
        run = wandb.init(**arguments, mode=mode)  # type: ignore[arg-type]
    if artifact is not None and mode == "online":
        run.use_artifact(artifact)
    run.define_metric("extrapolation/length")
    run.define_metric("extrapolation/*", step_metric="extrapolation/length")
    for row in _rows(directory, config["context_length"]):
        run.log(row)
    run.summary.update({"status": manifest["status"], "parameters": manifest["parameters"]})
    record = Path(run.dir) / "record"
    record.mkdir()
    for name in ("manifest.json", *manifest["files"]):
        shutil.copyfile(directory / name, record / name)
        run.save(record / name, base_path=run.dir, policy="now")
    run.finish()
    kept = directory.glob(f"wandb/offline-run-*-{number}")
    return {
        "id": number,
        "mode": mode,
        "url": run.url if mode == "online" else None,
        "path": next((str(path.relative_to(directory)) for path in kept), None),
    }


def _rows(directory: Path, context_length: int) -> list[dict[str, Any]]:
    """Losses and bits per byte by length, under the names that a training run logs them by."""
    segments = sums.segments(directory / "extrapolation.csv")
    rows = []
    for k in sorted({multiple for _, multiple in segments}):
        row: dict[str, Any] = {"extrapolation/length": round(k * context_length)}
        for protocol, prefix in PROTOCOLS.items():
            stretches = segments.get((protocol, k), {}).values()
            row[f"extrapolation/{prefix}loss"] = mean_loss(stretches)
            row[f"extrapolation/{prefix}bits_per_byte"] = mean_bits(stretches)
        rows.append(row)
    return rows
