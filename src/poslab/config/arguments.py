"""Command lines without Hydra: `key=value` arguments, --help, and errors of one line.

It imports nothing slow, so that a mistake is reported at once.
"""

import sys
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

FAILED, WRONG_COMMAND, INTERRUPTED = 1, 2, 130  # exit statuses
HELP = {"-h", "--help", "help"}


class ArgumentError(ValueError):
    """An argument that is not understood; the message is one line."""


def help_requested(arguments: Iterable[str], usage: str) -> bool:
    """Print `usage` and return True where one of the arguments asks for help."""
    requested = not HELP.isdisjoint(arguments)
    if requested:
        print(usage, end="")
    return requested


def read_options(arguments: Iterable[str], keys: Sequence[str]) -> dict[str, str]:
    """Return the values of `key=value` arguments, by key.

    Raises ArgumentError for an argument that is unknown, empty or given twice.
    """
    options: dict[str, str] = {}
    for argument in arguments:
        key, equals, value = argument.lstrip("-").partition("=")
        if key not in keys or not equals:
            known = ", ".join(f"{name}=..." for name in keys)
            near = get_close_matches(key.lower(), keys, n=1)
            meant = f" (did you mean {near[0]}=...?)" if near else ""
            raise ArgumentError(f"{argument[:100]!r} is not understood{meant}; the arguments are {known}")
        if not value:
            raise ArgumentError(f"{key}= has no value")
        if key in options:
            raise ArgumentError(f"{key} is given twice")
        options[key] = value
    return options


def refuse(command: str, message: str, status: int = WRONG_COMMAND) -> int:
    """Print on standard error why `command` ends, and return its exit status."""
    print(f"{command}: {message}", file=sys.stderr)
    return status
