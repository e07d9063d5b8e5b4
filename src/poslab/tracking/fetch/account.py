"""Reading from W&B: whose account, which project, where what is read is kept, and errors as one line each."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from poslab.config.text import plain
from poslab.data.cache import cache_directory
from poslab.tracking.login import logged_in

PROJECT = "poslab"  # as conf/logger/wandb.yaml has it
REFUSED = (401, 403)
RETRIES = 3  # of a file that the server fails to give; with W&B's own 20 a broken server is waited for long


class SourceError(Exception):
    """W&B does not give what was asked for; one line, and the exit status: 2 where the user can mend it."""

    def __init__(self, line: str, status: int) -> None:
        super().__init__(line)
        self.status = status


@dataclass(frozen=True)
class Account:
    """A project of somebody's in W&B, open for reading."""

    api: Any  # wandb.Api
    entity: str
    project: str

    @property
    def path(self) -> str:
        return f"{self.entity}/{self.project}"

    @property
    def folder(self) -> Path:
        """Where what was read of the project is kept, in the user's cache."""
        return cache_directory().parent / "wandb" / self.entity / self.project


def opened(project: str | None, entity: str | None) -> Account:
    """The project, of the account's own entity where none is named. Raises SourceError."""
    if not logged_in():
        raise SourceError("not logged in to W&B: give `wandb login`, or set WANDB_API_KEY", 2)
    import wandb

    wandb.setup(wandb.Settings(silent=True, x_file_transfer_retry_max=RETRIES))
    try:
        api = wandb.Api()
        entity = entity or api.default_entity
    except Exception as error:  # no address, no answer, a key that is refused
        if http_status(error) in REFUSED:
            raise SourceError("W&B refuses the key: give `wandb login --relogin`", 2) from None
        raise SourceError(f"W&B does not answer: {_line(error)}", 1) from None
    project = project or PROJECT
    for name in (entity, project):
        if not name or Path(name).name != name or name.startswith("."):
            raise SourceError(f"{str(name)[:60]!r} is no name of an entity or a project in W&B", 2)
    assert entity is not None
    return Account(api, entity, project)


def closed() -> None:
    """Leave W&B: the settings for reading are not those of a run that is logged by the same process."""
    import wandb

    wandb.teardown()


@contextmanager
def asking(what: str) -> Iterator[None]:
    """Inside, whatever the client raises becomes one line that says `what` was asked for."""
    try:
        yield
    except SourceError:
        raise
    except Exception as error:
        raise SourceError(f"W&B does not give {what}: {_line(error)}", 1) from None


def http_status(error: BaseException) -> int | None:
    """What the server answered, where an error of the client is about that."""
    for each in (error, error.__cause__, getattr(error, "exc", None)):
        status = getattr(getattr(each, "response", None), "http_status", None)
        if isinstance(status, int) and status:
            return status
    return None


def _line(error: Exception) -> str:
    return plain(str(error) or type(error).__name__, 200)
