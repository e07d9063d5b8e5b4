"""The run or model named by checkpoint=, on this machine or downloaded from W&B."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from poslab.config.errors import UserError
from poslab.config.schema import ConfigError
from poslab.loggers.fetch.account import Account, asking, open_account
from poslab.loggers.fetch.study import fetch_run
from poslab.record.locks import file_lock
from poslab.record.schema import FINAL, MANIFEST, TOKENIZER
from poslab.record.study_list import WAIT

ARTIFACT = re.compile(r"(?:(?:([^/:]+)/)?([^/:]+)/)?([^/:]+:[^/:]+)")


@dataclass(frozen=True)
class ArtifactName:
    """The name of a model in W&B; entity and project may be None."""

    entity: str | None
    project: str | None
    name: str  # including version or alias

    def account(self, project: str | None, entity: str | None) -> Account:
        """Open the project in the name, or else the one in the arguments. Raise UserError."""
        return open_account(self.project or project, self.entity or entity)


def resolve_checkpoint(name: str) -> Path | ArtifactName:
    """Return the run directory with the path or checkpoint `name`, or an artifact. Raise ConfigError."""
    if not name:
        raise ConfigError("checkpoint= lacks a name")
    path = Path(os.path.expanduser(name))
    if path.is_dir():
        return path
    if path.is_file() and path.name == FINAL:
        return path.parent
    if path.exists():
        raise ConfigError(f"checkpoint={name} is not the {FINAL} of a run")
    if match := ARTIFACT.fullmatch(name):
        return ArtifactName(match[1], match[2], match[3])
    raise ConfigError(
        f"checkpoint={name} does not exist: name a run directory such as runs/STUDY/RUN, its {FINAL}, or a "
        "W&B artifact such as checkpoint-RUN:latest"
    )


def fetch_model(account: Account, name: str) -> tuple[Path, str]:
    """Download checkpoint, manifest and tokenizer of an artifact; return their folder and its full name.

    The caller checks whether the files belong together. Raise UserError.
    """
    artifact = _artifact(account, name)
    with asking(f"{account.path}/{name}"):
        version = f"{name.partition(':')[0]}:{artifact.version}"  # `latest` changes with the next upload
    folder = account.folder / "artifacts" / re.sub(r"[^\w.-]|^\.", "_", version)
    with file_lock(folder.parent / f".{folder.name}.lock", WAIT), asking(f"{account.path}/{name}"):
        entries = artifact.manifest.entries
        for file in (FINAL, MANIFEST, TOKENIZER):
            if file == TOKENIZER and file not in entries:  # a model on bytes has none
                continue
            # A reference could make the client read an arbitrary address.
            if file not in entries or any(entry.ref is not None for entry in entries.values()):
                raise UserError(f"W&B: {account.path}/{version} has no {file} of a run")
            artifact.download(root=str(folder), path_prefix=file, skip_cache=True)
    return folder, f"{account.path}/{version}"


def fetch_run_of(account: Account, name: str) -> Path:
    """Download the record of the run that logged the artifact; return its directory. Raise UserError."""
    artifact = _artifact(account, name)
    with asking(f"{account.path}/{name}"):
        run = artifact.logged_by()
    if run is None:
        raise UserError(f"W&B: no run has logged {account.path}/{name}")
    return fetch_run(account, run)


def _artifact(account: Account, name: str) -> Any:
    path = f"{account.path}/{name}"
    with asking(path, f"W&B has no artifact {path}"):
        return account.api.artifact(path)
