"""Whether W&B has an account to use, and whether its server answers."""

import netrc
import os
import urllib.error
import urllib.request
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

ANSWER = 5.0  # seconds that a server has to answer before a run goes on offline


def mode() -> Literal["online", "offline"]:
    """Online where the user is logged in and the server answers; without a login nothing is asked of it."""
    return "online" if logged_in() and answers() else "offline"


def server() -> str:
    """The address of W&B's server, or of the user's own."""
    return os.environ.get("WANDB_BASE_URL") or "https://api.wandb.ai"


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
