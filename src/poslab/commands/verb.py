"""The frame of all commands: help texts, and one-line errors with an exit status."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from yaml import YAMLError  # type: ignore[import-untyped]

from poslab.config.arguments import HELP, read_options, refuse
from poslab.config.errors import FAILED, INTERRUPTED, WRONG_COMMAND, UserError
from poslab.config.installation import title, typed
from poslab.config.text import error_text

if TYPE_CHECKING:
    from poslab.config.option_files import Conf

Main = Callable[[list[str]], int]


def verb(
    name: str, usage: str, keys: Sequence[str] = (), flags: Sequence[str] = ()
) -> Callable[[Callable[[Any], int]], Main]:
    """Return a decorator that turns a function of options into the `main` of the command `name`.

    `keys` are the names of its options, and `flags` those that only accept true. Without keys, the function
    receives the arguments themselves.
    """

    def read(arguments: list[str]) -> Any:
        return read_options(arguments, keys, flags) if keys else arguments

    def framed(act: Callable[[Any], int]) -> Main:
        def main(arguments: list[str]) -> int:
            """Return the exit status; if it is 1, 2 or 130, a line on standard error says why."""
            if not HELP.isdisjoint(arguments):
                print(usage.format(command=typed(name), train=typed("train")), end="")
                return 0
            return answered(title(name), lambda: act(read(arguments)))

        return main

    return framed


def answered(command: str, act: Callable[[], int]) -> int:
    """Return the exit status of `act`. If it raises, print in one line why `command` ends."""
    try:
        return act()
    except KeyboardInterrupt:
        return refuse(command, "stopped", INTERRUPTED)
    except BrokenPipeError:  # the reader closed the pipe
        raise
    except UserError as error:
        return refuse(command, error_text(error), error.status)
    except (OSError, YAMLError) as error:  # YAMLError: in a user's option file
        return refuse(command, error_text(error), FAILED if isinstance(error, OSError) else WRONG_COMMAND)


def config_dir(arguments: list[str]) -> tuple[str, list[str]]:
    """Return the folder of --config-dir (or "") and the other arguments. Raise UserError if it is empty."""
    from poslab.config.compose import config_flags

    flags, remaining = config_flags(arguments, ("--config-dir", "-cd"))
    named = flags[-1] if flags else ""
    folder = named.partition("=")[2] if named.startswith("-") else named
    if flags and not folder:
        raise UserError("--config-dir has no value: name a folder with option files")
    return folder, remaining


def conf_with(names: Iterable[str]) -> "Conf":
    """Return poslab's option files and those in these folders. Raise UserError if one is not a folder."""
    from poslab.config.option_files import Conf, installed_conf

    folders = list(map(Path, names))
    for folder in folders:
        if not folder.is_dir():
            raise UserError(f"{folder} is not a folder: name one with option files")
    return Conf((*installed_conf().folders, *folders))
