"""The frame of commands: their help, and each error in one line with a status."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from poslab.config.arguments import FAILED, INTERRUPTED, ArgumentError, help_requested, refuse
from poslab.config.installation import title, typed

if TYPE_CHECKING:
    from poslab.config.option_files import Conf

Main = Callable[[list[str]], int]


def verb(name: str, usage: str) -> Callable[[Main], Main]:
    """Return a decorator that makes the `main` of the command `name` of a function of its arguments."""

    def framed(act: Main) -> Main:
        def main(arguments: list[str]) -> int:
            """Return the exit status; where it is 1, 2 or 130, a line on standard error says why."""
            if help_requested(arguments, usage.format(command=typed(name), train=typed("train"))):
                return 0
            try:
                return act(arguments)
            except ArgumentError as error:  # answered at once: nothing slow is imported
                return refuse(title(name), str(error))
            except KeyboardInterrupt:
                return refuse(title(name), "stopped", INTERRUPTED)
            except Exception as error:
                return refused(title(name), error)

        return main

    return framed


def refused(command: str, error: Exception) -> int:
    """Print in one line why `command` ends, and return its exit status. Raise any unexpected error."""
    from yaml import YAMLError  # type: ignore[import-untyped]

    from poslab.config.schema import ConfigError
    from poslab.config.text import error_text
    from poslab.loggers.fetch.account import SourceError
    from poslab.record.locks import TakenError
    from poslab.record.reader import ReportError

    match error:
        case SourceError():
            return refuse(command, str(error), error.status)
        case ConfigError() | ReportError() | YAMLError():  # the last: of an option file of the user's own
            return refuse(command, error_text(error))
        case TakenError():
            held = f"another command has had the lock {error} for long: has it stopped working?"
            return refuse(command, held, FAILED)
        case OSError() if not isinstance(error, BrokenPipeError):  # its reader has seen enough
            return refuse(command, error_text(error), FAILED)
    raise error


def config_dir(arguments: list[str]) -> tuple[str, list[str]]:
    """Return the folder that --config-dir names, "" for none, and the other arguments. Raise ConfigError."""
    from poslab.config.compose import config_flags
    from poslab.config.schema import ConfigError

    flags, remaining = config_flags(arguments, ("--config-dir", "-cd"))
    named = flags[-1] if flags else ""
    folder = named.partition("=")[2] if named.startswith("-") else named
    if flags and not folder:
        raise ConfigError("--config-dir has no value: name a folder with option files")
    return folder, remaining


def conf_with(names: Iterable[str]) -> "Conf":
    """Return poslab's option files and those in these folders. Raise ArgumentError."""
    from poslab.config.option_files import Conf, installed_conf

    folders = list(map(Path, names))
    for folder in folders:
        if not folder.is_dir():
            raise ArgumentError(f"{folder} is no folder: name one with option files")
    return Conf((*installed_conf().folders, *folders))
