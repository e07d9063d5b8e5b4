"""The location of poslab on this machine, and its commands as the user types them.

A checkout has scripts (`python train.py`), an installed package has one command (`poslab train`). Messages
and reports use the form that the user typed. This module imports nothing slow.
"""

import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[1]  # the package poslab
# Commands with their own script in a checkout; train.py runs the others.
SCRIPTS = ("train", "report")


def conf_folder() -> Path:
    """Return the folder of the option files: in an installed package, or at the top level of a checkout."""
    installed = PACKAGE / "conf"
    return installed if installed.is_dir() else PACKAGE.parents[1] / "conf"


def is_checkout() -> bool:
    """Return whether poslab runs from a checkout of the project, with train.py beside conf/."""
    return (conf_folder().parent / "train.py").is_file()


def typed(command: str) -> str:
    """Return `command` in the form that the user typed: `python train.py` or `poslab train`."""
    called = Path(sys.argv[0])
    if called.stem == "poslab":
        return f"poslab {command}"
    if called.name == "__main__.py" and called.parent.name == "poslab":
        return f"python -m poslab {command}"
    if not is_checkout():  # in a process that a command started
        return f"poslab {command}"
    return f"python {command}.py" if command in SCRIPTS else f"python train.py {command}"


def title(command: str) -> str:
    """Return the name that messages of `command` begin with: `report.py` or `poslab report`."""
    return typed(command).removeprefix("python ").removeprefix("-m ")


def with_extra(extra: str, command: str = "train.py") -> str:
    """Return how to install an `extra`: `uv run --extra` with `command` in a checkout, else `pip install`."""
    return f"uv run --extra {extra} {command} ..." if is_checkout() else f"pip install 'poslab[{extra}]'"
