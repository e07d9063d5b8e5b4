"""A model that a run has logged to W&B: its checkpoint, or the record of its run."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from poslab.record.locks import holding
from poslab.record.schema import FINAL, MANIFEST
from poslab.tracking.fetch.account import Account, SourceError, asking
from poslab.tracking.fetch.study import QUEUE, fetch_run


def fetch_model(account: Account, name: str) -> tuple[Path, str]:
    """A folder of the cache with the checkpoint and manifest of artifact `name`; its full name with version.

    They are not checked against each other here. Raises SourceError.
    """
    artifact = _artifact(account, name)
    with _reading(account, name):
        version = f"{name.partition(':')[0]}:{artifact.version}"  # `latest` is another one tomorrow
    folder = account.folder / "artifacts" / re.sub(r"[^\w.-]|^\.", "_", version)
    with holding(folder.parent / f".{folder.name}.lock", QUEUE), _reading(account, name):
        entries = artifact.manifest.entries
        for file in (FINAL, MANIFEST):
            # A reference may lead anywhere.
            if file not in entries or any(entry.ref is not None for entry in entries.values()):
                raise SourceError(f"W&B: {account.path}/{version} holds no {file} of a run", 2)
            artifact.download(root=str(folder), path_prefix=file, skip_cache=True)
    return folder, f"{account.path}/{version}"


def fetch_run_of(account: Account, name: str) -> Path:
    """The directory, in the cache, of the record of the run that logged the artifact. Raises SourceError."""
    artifact = _artifact(account, name)
    with _reading(account, name):
        run = artifact.logged_by()
    if run is None:
        raise SourceError(f"W&B: no run has logged {account.path}/{name}", 2)
    return fetch_run(account, run)


def _artifact(account: Account, name: str) -> Any:
    with _reading(account, name):
        try:
            return account.api.artifact(f"{account.path}/{name}")
        except Exception as error:
            if isinstance(getattr(error, "exc", None), ValueError):
                raise SourceError(f"W&B has no artifact {account.path}/{name}", 2) from None
            raise


@contextmanager
def _reading(account: Account, name: str) -> Iterator[None]:
    with asking(f"{account.path}/{name}"):
        yield
