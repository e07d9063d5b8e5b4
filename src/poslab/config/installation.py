"""The folder of poslab on this machine, and the names of its commands as the user typed them.

A checkout has scripts (`python train.py`), an installed package has one command (`poslab train`). Messages
and reports name the one that was typed. This module imports nothing that takes time.
"""

import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[1]  # of poslab
# What a checkout has as scripts; train.py has the other commands.
SCRIPTS = ("train", "report")


def conf_folder() -> Path:
    """Return the folder of the option files: in an installed package, or at the top level of a checkout."""
    installed = PACKAGE / "conf"
    return installed if installed.is_dir() else PACKAGE.parents[1] / "conf"


def is_checkout() -> bool:
    """Return whether this is a checkout of the project, where train.py lies beside conf/."""
    return (conf_folder().parent / "train.py").is_file()


def typed(command: str) -> str:
    """Return how `command` is called as the user calls poslab: `python train.py`, `poslab train`."""
    called = Path(sys.argv[0])
    if called.stem == "poslab":
        return f"poslab {command}"
    if called.name == "__main__.py" and called.parent.name == "poslab":
        return f"python -m poslab {command}"
    if not is_checkout():  # a process that a command has started
        return f"poslab {command}"
    return f"python {command}.py" if command in SCRIPTS else f"python train.py {command}"


def title(command: str) -> str:
    """Return the beginning of a message of `command`: report.py, poslab report."""
    return typed(command).removeprefix("python ").removeprefix("-m ")


def with_extra(extra: str, command: str = "train.py") -> str:
    """Return the command that installs a package that is missing here, in a checkout before `command`."""
    return f"uv run --extra {extra} {command} ..." if is_checkout() else f"pip install 'poslab[{extra}]'"
