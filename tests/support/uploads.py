"""A run's directory as it is in W&B."""

import shutil
from pathlib import Path

import wandb


def contents(directory):
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def upload(directory, number, study, *, job_type="train", files=None, log=None, folder=None):
    """A W&B run with what a run's directory holds under record/, as the tracker makes it."""
    run = wandb.init(
        project="poslab",
        id=number,
        name=directory.name,
        group=study,
        job_type=job_type,
        config={"identity": directory.name[-4:]},
        dir=folder or directory.parent.parent,
        settings=wandb.Settings(silent=True),
    )
    record = Path(run.dir) / "record"
    for path, name in files or [(path, path.name) for path in directory.iterdir() if path.is_file()]:
        (record / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, record / name)
        run.save(record / name, base_path=run.dir, policy="now")
    if log is not None:
        model = wandb.Artifact(log, type="model")
        for name in ("checkpoint.pt", "manifest.json", "tokenizer.json"):
            if (directory / name).exists():
                model.add_file(directory / name, name=name)
        run.log_artifact(model)
    run.finish()
