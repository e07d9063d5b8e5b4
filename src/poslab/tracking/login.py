"""Whether W&B has an account to use, and whether its server answers."""

import configparser
import netrc
import os
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from poslab.config.request import LoggerOptions

ANSWER = 5.0  # seconds that a server has to answer before a run goes on offline


def uses_wandb(options: LoggerOptions) -> bool:
    """Whether runs are shown in W&B at all."""
    return options.name == "wandb" and os.environ.get("WANDB_MODE") != "disabled"


def requested_place(options: LoggerOptions) -> dict[str, Any]:
    """What decides where a run is to be shown, and with what."""
    return {"project": options.project, "entity": options.entity, "checkpoints": options.checkpoints}


def mode() -> tuple[str | None, str | None]:
    """The mode to open a run in, and why where that is not what the user would think.

    None leaves it to W&B, whose own settings (`wandb offline`) count then. Without a login nothing is asked
    of the server.
    """
    if told := os.environ.get("WANDB_MODE"):
        return told, None
    if not logged_in():
        return "offline", None
    return (None, None) if answers() else ("offline", f"{server()} does not answer")


def server() -> str:
    """The address of W&B's server, or of the user's own: `wandb login --host` writes it to W&B's settings."""
    folder = Path(os.environ.get("WANDB_CONFIG_DIR") or "~/.config/wandb").expanduser()
    settings = configparser.ConfigParser(interpolation=None)
    with suppress(configparser.Error, OSError, UnicodeDecodeError):
        settings.read(folder / "settings")
    told = settings.get("default", "base_url", fallback=None)
    return os.environ.get("WANDB_BASE_URL") or told or "https://api.wandb.ai"


def answers() -> bool:
    """Whether the server says anything, were it an error: W&B's client itself asks for minutes."""
    try:
        with urllib.request.urlopen(server(), timeout=ANSWER):
            return True
    except urllib.error.HTTPError:
        return True
    except (OSError, ValueError):
        return False


def logged_in() -> bool:
    """Whether W&B has a key for its server: from the environment, or from the file `wandb login` writes."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    host = urlsplit(server()).hostname or ""
    path = Path(os.environ.get("NETRC") or "~/.netrc").expanduser()
    try:
        return netrc.netrc(path).authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False
