"""Send finished runs and evaluations to W&B from their records, with the same logger as during training.

A failure is printed and has no other effect: the record is complete without W&B. W&B's client takes a second
to import, so it is not imported here.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from poslab.config.request import Config
from poslab.loggers import Guarded, OpenedRun
from poslab.loggers.send.card import Card, artifact_name, settings_of
from poslab.loggers.send.offline import run_id
from poslab.loggers.wandb import Wandb, WandbOptions
from poslab.record.facts import Manifest
from poslab.record.locks import file_lock, run_lock
from poslab.record.manifest import read_manifest
from poslab.record.reader import metrics_rows
from poslab.record.seal import sealed
from poslab.record.writer import RunRecord


def mirror_run(options: WandbOptions, config: Config, card: Card, directory: Path) -> None:
    """Send a finished run, and record its place in its manifest."""
    with file_lock(run_lock(directory)):
        manifest = read_manifest(directory)
        assert manifest is not None
        record, rows = RunRecord(directory, manifest), metrics_rows(directory, manifest)
        # This comes first, so that the same W&B run is used again after a failure.
        record.update(wandb={"id": run_id(directory, manifest.wandb)})
        if place := _mirror(options, OpenedRun(config, card, directory, record.manifest, rows)):
            record.update(wandb=place)


def mirror_evaluation(
    options: WandbOptions | None, config: Config, directory: Path, manifest: Manifest, artifact: str | None
) -> Mapping[str, Any] | None:
    """Send a sealed evaluation once; return its place, None if it was sent before or W&B failed.

    `artifact` is the name of the weights in W&B, by default those of the run.
    """
    if options is None or manifest.wandb:
        return None
    named = manifest.updated(wandb={"id": f"evaluate-{directory.name.rpartition('-')[2]}"})
    weights = artifact or f"checkpoint-{artifact_name(str(manifest.run))}:latest"
    return _mirror(options, OpenedRun(config, _card(manifest), directory, named, (), weights=weights))


def _mirror(options: WandbOptions, opened: OpenedRun) -> Mapping[str, Any] | None:
    """Send a complete record; return its place, None if W&B failed."""
    wandb = Wandb(options)
    wandb.title = f"{opened.card.name}: W&B"
    logger = Guarded(wandb)
    logger.open(opened)
    whole = opened.manifest.updated(wandb={**(logger.place or {}), "complete": True})
    logger.finish(sealed(whole.as_json()), int(whole.status != "done"))
    return logger.place if logger.place and "complete" in logger.place else None


def _card(manifest: Manifest) -> Card:
    study, pos, attention = str(manifest.study), str(manifest.pos), str(manifest.attention)
    arm = f"{pos} / {attention}"
    settings = settings_of(study, arm, pos, attention, manifest.config or {})
    return Card(
        group=study,
        job_type="evaluate",
        name=f"evaluation of {arm} / seed {manifest.seed}",
        tags=("evaluation",),
        notes=None,
        config={**settings, "run": manifest.run},
    )
