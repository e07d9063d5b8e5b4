"""Whether W&B has an account to use, found out without asking it."""

import netrc
import os
from pathlib import Path
from urllib.parse import urlsplit


def logged_in() -> bool:
    """Whether W&B has a key for its server: from the environment, or from the file `wandb login` writes."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    host = urlsplit(os.environ.get("WANDB_BASE_URL") or "https://api.wandb.ai").hostname or ""
    path = Path(os.environ.get("NETRC") or "~/.netrc").expanduser()
    try:
        return netrc.netrc(path).authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False
