"""Command lines that Hydra does not parse: `key=value` arguments, --help and one-line errors.

This module imports nothing slow, so that a mistake is reported at once.
"""

import sys
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from poslab.config.errors import WRONG_COMMAND, UserError

HELP = {"-h", "--help", "help"}


def read_options(arguments: Iterable[str], keys: Sequence[str], flags: Sequence[str] = ()) -> dict[str, str]:
    """Return the values of `key=value` arguments, by key.

    Raise UserError if an argument is unknown, has no value or appears twice, or if one of the `flags` has a
    value other than true.
    """
    options: dict[str, str] = {}
    for argument in arguments:
        key, equals, value = argument.lstrip("-").partition("=")
        if key not in keys or not equals:
            known = ", ".join(f"{name}=..." for name in keys)
            near = get_close_matches(key.lower(), keys, n=1)
            meant = f" (did you mean {near[0]}=...?)" if near else ""
            raise UserError(f"{argument[:100]!r} is not a known argument{meant}; the arguments are {known}")
        if not value:
            raise UserError(f"{key}= has no value")
        if key in options:
            raise UserError(f"{key} appears twice")
        if key in flags and value != "true":
            raise UserError(f"{key}={value} is unknown: write {key}=true, or leave {key} out")
        options[key] = value
    return options


def refuse(command: str, message: str, status: int = WRONG_COMMAND) -> int:
    """Print on standard error why `command` ends, and return the exit `status`."""
    print(f"{command}: {message}", file=sys.stderr)
    return status
