"""The folders for prepared texts and for what commands cache about their plans."""

import os
from pathlib import Path


def cache_directory() -> Path:
    """Return the folder `data` in $POSLAB_CACHE, or in `poslab` in the user's cache directory."""
    if chosen := os.environ.get("POSLAB_CACHE"):
        return Path(chosen).expanduser() / "data"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "poslab" / "data"


def planning_directory() -> Path:
    """Return the folder beside the texts where commands cache their plans (poslab.record.remembered)."""
    return cache_directory().parent / "planning"
