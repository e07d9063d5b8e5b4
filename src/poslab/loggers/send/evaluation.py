"""An evaluation as a W&B run of its own, beside the run of its model."""

import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from poslab.loggers import error_line
from poslab.loggers.send.card import Card, settings_of
from poslab.loggers.send.charts import summary
from poslab.loggers.wandb import WandbOptions
from poslab.record.facts import Manifest
from poslab.record.reader import load_evaluation
from poslab.record.schema import MANIFEST


def mirror_evaluation(
    options: WandbOptions | None, directory: Path, manifest: Manifest, artifact: str | None
) -> Mapping[str, Any] | None:
    """Send a sealed evaluation to W&B once; return its place, None where it was sent before or W&B failed.

    A failure is printed and has no other effect: the record is complete without W&B.
    """
    if options is None or manifest.wandb:
        return None
    number = f"evaluate-{directory.name.rpartition('-')[2]}"
    try:
        import wandb  # takes a second

        from poslab.loggers.send import run as sending

        run = load_evaluation(directory, manifest)
        with sending.own_variables(directory):
            opened, place = sending.open_run(options, _card(manifest), directory, number)
            try:
                if place["mode"] == "online":
                    weights = f"checkpoint-{sending.artifact_name(str(manifest.run))}:latest"
                    with suppress(wandb.errors.Error, ValueError):  # the run may have left none there
                        opened.use_artifact(artifact or weights)
                sending.define_axes(opened)
                sending.log_charts(opened, run, 0)
                opened.summary.update(summary(run))
                for name in (MANIFEST, *(manifest.files or {})):
                    sending.save_file(opened, name, (directory / name).read_bytes())
            finally:
                opened.finish()
    except Exception as error:  # the server, a full disk, a setting of W&B's own that is wrong
        print(f"W&B failed; the evaluation is recorded without it: {error_line(error)}", file=sys.stderr)
        return None
    return place


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
