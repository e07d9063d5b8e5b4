"""Check whether there is a W&B login, and whether W&B's server answers."""

import os
import urllib.error
import urllib.request
from contextlib import suppress
from typing import Any

from poslab.loggers.wandb import WandbOptions

ANSWER_SECONDS = 5.0  # the time that a server has to answer before a run goes offline


def in_wandb_sweep() -> bool:
    """Return whether an agent of a W&B sweep runs this command: the agent then chooses the run's id."""
    return bool(os.environ.get("WANDB_SWEEP_ID") and os.environ.get("WANDB_RUN_ID"))


def requested_place(options: WandbOptions) -> dict[str, Any]:
    """Return the options that decide where a run is in W&B and which of its files are sent."""
    place = {"project": options.project, "entity": options.entity, "checkpoints": options.checkpoints}
    # Only if it is on: runs that were sent before the option existed count as complete.
    return {**place, "console": True} if options.console else place


def mode() -> tuple[str | None, str | None]:
    """Return the mode to open a run in, and the reason if it is offline despite a login.

    None leaves the mode to W&B's own settings (`wandb offline`). Without a login the server is not called.
    """
    if variable := os.environ.get("WANDB_MODE"):
        return variable, None
    if not logged_in():
        return "offline", None
    return (None, None) if answers() else ("offline", f"{server()} does not answer")


def server() -> str:
    """Return the address of the server that W&B's client calls."""
    from wandb.sdk.wandb_setup import singleton

    return singleton().settings.base_url


def answers() -> bool:
    """Return whether the server answers, even with an error; W&B's own client would retry for minutes."""
    try:
        with urllib.request.urlopen(server(), timeout=ANSWER_SECONDS):
            return True
    except urllib.error.HTTPError:
        return True
    except (OSError, ValueError):
        return False


def logged_in() -> bool:
    """Return whether W&B's client has a key for its server, valid or not. The user is not prompted."""
    from wandb.errors import AuthenticationError
    from wandb.sdk.lib.wbauth import authenticate_session

    try:
        key = authenticate_session(host=server(), source="poslab", prompt=False, update_session=False)
    except AuthenticationError:  # using the key reports what is wrong with it
        return True
    return key is not None


def forget_client() -> None:
    """End the client's own process and drop its settings, unless the caller has a W&B run open.

    Otherwise the client does so when Python exits, and prints a traceback if its process has died, as it does
    after some answers of a server.
    """
    import wandb

    with suppress(Exception, SystemExit):  # it exits with the status of its process if that was killed
        if wandb.setup().most_recent_active_run is None:
            wandb.teardown()


def kill_client() -> None:
    """Kill the client's own process and drop its settings. Unsent data stays on disk."""
    import wandb

    with suppress(AttributeError):  # there is no process
        wandb.setup()._connection._proc._process.kill()  # type: ignore[union-attr]
    with suppress(Exception, SystemExit):
        wandb.teardown()
