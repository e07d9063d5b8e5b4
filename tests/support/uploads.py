"""A run's directory as it is in W&B."""

import shutil
from pathlib import Path

import wandb


def upload(directory, number, study, *, log, folder):
    """A W&B run with what a run's directory holds under record/, as the tracker makes it."""
    run = wandb.init(
        project="poslab",
        id=number,
        name=directory.name,
        group=study,
        job_type="train",
        config={"identity": directory.name[-4:]},
        dir=folder,
        settings=wandb.Settings(silent=True),
    )
    record = Path(run.dir) / "record"
    record.mkdir()
    for path in (path for path in directory.iterdir() if path.is_file()):
        shutil.copyfile(path, record / path.name)
        run.save(record / path.name, base_path=run.dir, policy="now")
    model = wandb.Artifact(log, type="model")
    for name in ("checkpoint.pt", "manifest.json", "tokenizer.json"):
        if (directory / name).exists():
            model.add_file(directory / name, name=name)
    run.log_artifact(model)
    run.finish()
