"""The command `poslab`, also called by the scripts of a checkout. Each command is a module in this folder."""

import importlib
import os
import select
import signal
import sys
from difflib import get_close_matches
from typing import NoReturn
from weakref import finalize

from poslab.config.arguments import HELP, refuse
from poslab.config.errors import FAILED, WRONG_COMMAND
from poslab.config.installation import typed
from poslab.config.text import one_line

COMMANDS = {
    "train": "train one model, or a study with -m, and write its report",
    "status": "show the state of a study's runs, even while another command runs them",
    "report": "write the report of a study again, from its records",
    "evaluate": "evaluate a trained model again: longer windows, other text, other rotations",
    "export": "write a trained model for other programs, as safetensors or for transformers",
    "dashboard": "create a study's workspace and Report in W&B",
    "grid": "print which scheme works under which attention",
    "check-scheme": "check your own positional scheme under every attention",
    "fetch-text": "fetch a text from an npm or Debian package, for data=NAME",
    "clean": "remove the runs of a study that failed, were stopped or never began",
}
# Commands that train.py accepts as its first argument.
OF_TRAIN = tuple(name for name in COMMANDS if name != "train")


def main() -> NoReturn:
    """Run the console script `poslab`."""
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in HELP:
        print(_help(), end="")
        _leave(0 if arguments else WRONG_COMMAND)
    command, *rest = arguments
    if command == "--version":
        _show_version()
    if command not in COMMANDS:
        _leave(refuse("poslab", _unknown(command)))
    run(command, rest)


def run(command: str, arguments: list[str]) -> NoReturn:
    """Run a command, then end this process."""
    if "--version" in arguments:  # Hydra would print its own
        _show_version()
    arguments = [_with_home(argument) for argument in arguments]
    if command == "train" and arguments and arguments[0] in OF_TRAIN:
        command, *arguments = arguments
    sys.path.append(os.getcwd())  # for a user's own modules; last, so that they hide no others
    try:
        status = importlib.import_module(f"poslab.commands.{command.replace('-', '_')}").main(arguments)
    except SystemExit as leaving:  # from argparse, Hydra or a stopped command
        if not isinstance(leaving.code, int | None):
            raise
        status = leaving.code or 0
    except BrokenPipeError:
        if not _reader_is_gone():
            raise
        status = 128 + signal.SIGPIPE  # as if this signal had ended the program
    _leave(status)


def _with_home(argument: str) -> str:
    """Return `runs=~/x` with the home folder for `~`, which shells replace only at the start of a word.

    Hydra accepts `~` only within quotes. Text in quotes does not change.
    """
    key, is_set, value = argument.partition("=")
    if "'" in value or '"' in value:
        return argument
    return f"{key}{is_set}{','.join(map(os.path.expanduser, value.split(',')))}"


def _reader_is_gone() -> bool:
    """Return whether the output is a pipe that its reader has closed, as `head` does."""
    output = select.poll()
    output.register(1, 0)
    return any(event & select.POLLERR for _, event in output.poll(0))


def _show_version() -> NoReturn:
    from poslab import __version__

    print(f"poslab {__version__}")
    _leave(0)


def _leave(status: int) -> NoReturn:
    """End the process at once: Python would wait a second for W&B's service, which has written everything.

    Temporary folders, including those of W&B, are removed as at a normal exit of Python.
    """
    finalize._exitfunc()  # type: ignore[attr-defined]
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:  # the reader has closed the pipe
        pass
    except OSError:  # not all output could be written: a full disk
        status = status or FAILED
    os._exit(status)


def _help() -> str:
    called = typed("train").removesuffix(" train") if "poslab" in typed("train") else "poslab"
    lines = [f"  {called} {name:<14}{text}" for name, text in COMMANDS.items()]
    return "\n".join(
        [
            "poslab trains small GPTs with different positional schemes and reports how they compare.",
            "",
            *lines,
            "",
            f"  {called} train -m pos=rope,alibi     a first study: some minutes on two CPU cores",
            f"  {called} COMMAND --help              the settings and examples of a command",
            "",
            "Runs and reports are written to ./runs and ./reports, or to runs=DIR and reports=DIR.",
            "",
        ]
    )


def _unknown(command: str) -> str:
    known = f"the commands are {', '.join(COMMANDS)}"
    if "=" in command or command.startswith("-"):
        return f"{one_line(command, 60)!r} is not a command; to train, begin with `poslab train`; {known}"
    near = get_close_matches(command.lower(), COMMANDS, n=1)
    meant = f"did you mean {near[0]}? " if near else ""
    return f"{one_line(command, 60)!r} is not a command; {meant}{known}"
