"""The run that a command names: by its directory or its checkpoint."""

from pathlib import Path

from poslab.config import ConfigError
from poslab.record import FINAL


def run_directory(name: str) -> Path:
    """The directory of the run that a path to it, or to its checkpoint, names. Raises ConfigError."""
    if not name:
        raise ConfigError("checkpoint= lacks a name")
    path = Path(name).expanduser()
    if path.is_dir():
        return path
    if path.is_file() and path.name == FINAL:
        return path.parent
    if path.exists():
        raise ConfigError(f"checkpoint={name} is no {FINAL} of a run")
    raise ConfigError(
        f"checkpoint={name} does not exist: name a run directory such as runs/STUDY/RUN, its {FINAL}, or a "
        "W&B artifact such as checkpoint-RUN:latest"
    )
