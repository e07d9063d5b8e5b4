"""A W&B project opened for reading: its entity, its folder in the cache, and one-line errors."""

import atexit
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from poslab.config.errors import FAILED, UserError
from poslab.config.text import IN_A_URL, plain
from poslab.data.directories import cache_directory
from poslab.loggers.send.login import answers, forget_client, logged_in, server
from poslab.loggers.wandb import default_project

REFUSED = (401, 403)  # HTTP statuses
RETRIES = 3  # of a failed download; W&B's default of 20 takes minutes if a server is broken


@dataclass(frozen=True)
class Account:
    """A project in W&B, with the client that reads it."""

    api: Any  # wandb.Api
    entity: str
    project: str

    @property
    def path(self) -> str:
        return f"{self.entity}/{self.project}"

    @property
    def folder(self) -> Path:
        """The folder in the user's cache for downloads from the project."""
        return cache_directory().parent / "wandb" / self.entity / self.project


def open_account(project: str | None, entity: str | None) -> Account:
    """Open a project; the default is the same as for runs: WANDB_PROJECT, else `poslab`. Raise UserError."""
    import wandb  # takes seconds

    try:
        if not logged_in():
            raise UserError("not logged in to W&B: run `wandb login`, or set WANDB_API_KEY")
        if not answers():  # W&B's own client may retry for more than a minute
            raise UserError(f"W&B does not answer: {plain(server(), 200)}", FAILED)
        forget_client()  # the client has read its settings above, and only a new one is silent
        wandb.setup(wandb.Settings(silent=True, x_file_transfer_retry_max=RETRIES))
        api = wandb.Api()
        entity = entity or api.settings["entity"] or api.default_entity
    except UserError:
        raise
    except Exception as error:  # no address, no answer, a refused key
        forget_client()
        if http_status(error) in REFUSED:
            raise UserError("W&B refuses the key: run `wandb login --relogin`") from None
        raise UserError(f"W&B does not answer: {_line(error)}", FAILED) from None
    atexit.register(forget_client)
    if not entity:
        raise UserError("the W&B account belongs to no entity: set entity=NAME")
    project = project or default_project()
    for name in (entity, project):
        if not IN_A_URL.fullmatch(name) or name.startswith("."):
            raise UserError(f"{name[:60]!r} cannot be the name of an entity or a project in W&B")
    return Account(api, entity, project)


@contextmanager
def asking(subject: str, absent: str = "") -> Iterator[None]:
    """Turn the client's errors into a UserError that names the `subject` of the request.

    `absent` is the message if W&B does not have the subject.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if absent and isinstance(getattr(error, "exc", error), ValueError):
            raise UserError(absent) from None
        raise UserError(f"W&B failed at {subject}: {_line(error)}", FAILED) from None


def http_status(error: BaseException) -> int | None:
    """Return the HTTP status behind an error of the client; None if the server did not answer."""
    for source in (error, error.__cause__, getattr(error, "exc", None)):
        status = getattr(getattr(source, "response", None), "http_status", None)
        if isinstance(status, int) and status:
            return status
    return None


def _line(error: Exception) -> str:
    return plain(str(error) or type(error).__name__, 200)
