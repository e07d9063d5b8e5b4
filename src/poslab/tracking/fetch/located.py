"""The run that checkpoint= names: by its directory, its checkpoint or its model in W&B."""

import re
from dataclasses import dataclass
from pathlib import Path

from poslab.config.schema import ConfigError
from poslab.record.schema import FINAL

ARTIFACT = re.compile(r"(?:(?:([^/:]+)/)?([^/:]+)/)?([^/:]+:[^/:]+)")


@dataclass(frozen=True)
class Artifact:
    """A model in W&B, as far as its name was given."""

    entity: str | None
    project: str | None
    name: str  # with version or alias


def resolve_checkpoint(name: str) -> Path | Artifact:
    """The run directory that a path names, to it or its checkpoint; else an artifact. Raises ConfigError."""
    if not name:
        raise ConfigError("checkpoint= lacks a name")
    path = Path(name).expanduser()
    if path.is_dir():
        return path
    if path.is_file() and path.name == FINAL:
        return path.parent
    if path.exists():
        raise ConfigError(f"checkpoint={name} is no {FINAL} of a run")
    if found := ARTIFACT.fullmatch(name):
        return Artifact(found[1], found[2], found[3])
    raise ConfigError(
        f"checkpoint={name} does not exist: name a run directory such as runs/STUDY/RUN, its {FINAL}, or a "
        "W&B artifact such as checkpoint-RUN:latest"
    )
