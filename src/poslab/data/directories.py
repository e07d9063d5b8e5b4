"""Where prepared texts lie, and beside them what commands remember of their plans."""

import os
from pathlib import Path


def cache_directory() -> Path:
    """$POSLAB_CACHE, or poslab in the user's cache directory."""
    if chosen := os.environ.get("POSLAB_CACHE"):
        return Path(chosen).expanduser() / "data"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "poslab" / "data"


def planning_directory() -> Path:
    """Beside the texts: what commands remember of their plans (poslab.record.remembered)."""
    return cache_directory().parent / "planning"
