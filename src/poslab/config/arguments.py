"""The arguments `key=value` of the commands that Hydra does not serve. It imports nothing that takes time."""

from collections.abc import Iterable, Sequence


class ArgumentError(ValueError):
    """An argument that is not understood; the message is one line."""


def read(arguments: Iterable[str], keys: Sequence[str]) -> dict[str, str]:
    """What the arguments say, by key. Raises ArgumentError for an unknown, empty or repeated one."""
    options: dict[str, str] = {}
    for argument in arguments:
        key, equals, value = argument.lstrip("-").partition("=")
        if key not in keys or not equals:
            known = ", ".join(f"{name}=..." for name in keys)
            raise ArgumentError(f"{argument[:100]!r} is not understood; say {known}")
        if not value:
            raise ArgumentError(f"{key}= has no value")
        if key in options:
            raise ArgumentError(f"{key} is given twice")
        options[key] = value
    return options
