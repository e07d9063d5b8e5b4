"""The command `poslab`, and what the scripts of a checkout call: a command is a module of this folder."""

import importlib
import os
import select
import signal
import sys
from difflib import get_close_matches
from types import FrameType
from typing import NoReturn
from weakref import finalize

from poslab.config.arguments import HELP, refuse
from poslab.config.errors import FAILED, WRONG_COMMAND
from poslab.config.installation import typed
from poslab.config.text import one_line

COMMANDS = {
    "train": "train one model or, with -m, a study, and write its report",
    "status": "the state of a study's runs, also while another command runs them",
    "report": "write the report of a study again, from its records",
    "evaluate": "evaluate a trained model again: longer windows, other text, other rotations",
    "export": "write a trained model as safetensors, for other programs",
    "dashboard": "make a study's workspace and Report in W&B",
    "grid": "print which scheme works under which attention",
    "check-scheme": "try a positional scheme of your own under every attention",
    "fetch-text": "fetch a text from a package of npm or Debian, for data=NAME",
    "clean": "remove the runs of a study that failed or were abandoned",
}
# Words that train.py takes before its settings.
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
    """Run a command to the end of this process."""
    if "--version" in arguments:  # Hydra would print its own
        _show_version()
    arguments = [_with_home(argument) for argument in arguments]
    if command == "train":
        flags = ["", *arguments]  # a folder may have the name of a command
        words = [
            word
            for flag, word in zip(flags, arguments, strict=False)
            if word in OF_TRAIN and flag not in ("--config-dir", "-cd")
        ]
        # `--help evaluate` is about the settings `evaluate.*` of train.py.
        if words and arguments not in (["--help", "evaluate"], ["-h", "evaluate"]):
            command = words[0]
            arguments.remove(command)
    sys.path.append(os.getcwd())  # for a user's own modules; last, so that they hide no others
    if command == "train":  # before its imports, which take seconds
        signal.signal(signal.SIGINT, _end_at_once)
        signal.signal(signal.SIGTERM, _end_at_once)
    try:
        status = importlib.import_module(f"poslab.commands.{command.replace('-', '_')}").main(arguments)
    except SystemExit as leaving:  # of argparse, of Hydra, of a command that was stopped
        if not isinstance(leaving.code, int | None):
            raise
        status = leaving.code or 0
    except BrokenPipeError:
        if not _nobody_reads():
            raise
        status = 128 + signal.SIGPIPE  # as of a program that this signal ends
    _leave(status)


def _with_home(argument: str) -> str:
    """Return `runs=~/x` with the home folder for `~`, which shells replace only at the beginning of a word.

    Hydra reads `~` within quotes only, and a text in quotes stays as it is.
    """
    key, is_set, value = argument.partition("=")
    if "'" in value or '"' in value:
        return argument
    return f"{key}{is_set}{','.join(map(os.path.expanduser, value.split(',')))}"


def _nobody_reads() -> bool:
    """Return whether the output is a pipe that its reader has closed, as `head` does."""
    output = select.poll()
    output.register(1, 0)
    return any(event & select.POLLERR for _, event in output.poll(0))


def _show_version() -> NoReturn:
    from poslab import __version__

    print(f"poslab {__version__}")
    _leave(0)


def _leave(status: int) -> NoReturn:
    """End at once: Python would wait a second for W&B's service, which has written everything by then.

    Its temporary folders, and others, are removed as Python does at its end.
    """
    finalize._exitfunc()  # type: ignore[attr-defined]
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:  # the reader has closed the pipe
        pass
    except OSError:  # the output is not written in full: a full disk
        status = status or FAILED
    os._exit(status)


def _end_at_once(number: int, frame: FrameType | None) -> None:
    """End at once: there is nothing yet that could be lost."""
    os.write(2, b"poslab: stopped before anything was trained\n")
    os._exit(128 + number)


def _help() -> str:
    called = typed("train").removesuffix(" train") if "poslab" in typed("train") else "poslab"
    lines = [f"  {called} {name:<14}{text}" for name, text in COMMANDS.items()]
    return "\n".join(
        [
            "poslab trains small GPTs under different positional schemes and reports what they did.",
            "",
            *lines,
            "",
            f"  {called} train -m pos=rope,alibi     is a first study: some minutes on two CPU cores",
            f"  {called} COMMAND --help              has the settings and examples of a command",
            "",
            "Runs and reports are written to ./runs and ./reports; runs=DIR and reports=DIR name others.",
            "",
        ]
    )


def _unknown(command: str) -> str:
    known = f"there are {', '.join(COMMANDS)}"
    if "=" in command or command.startswith("-"):
        return f"{one_line(command, 60)!r} is no command; to train, begin with `poslab train`; {known}"
    near = get_close_matches(command.lower(), COMMANDS, n=1)
    meant = f"did you mean {near[0]}? " if near else ""
    return f"{one_line(command, 60)!r} is no command; {meant}{known}"
