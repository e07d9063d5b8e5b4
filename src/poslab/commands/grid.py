"""Which scheme works under which attention."""

from pathlib import Path

from poslab.config.arguments import ArgumentError, help_requested, read_options, refuse
from poslab.config.installation import typed

USAGE = """\
Print which positional scheme works under which attention, as a table in Markdown, and why the others do not.

  {command} [conf=DIR]

  conf   a folder with option files of your own (pos/NAME.yaml, attention/NAME.yaml) besides poslab's
"""


def main(arguments: list[str]) -> int:
    """Return exit status 0, or 2 with one line on stderr where the command is wrong."""
    if help_requested(arguments, USAGE.format(command=typed("grid"))):
        return 0
    try:
        options = read_options(arguments, ("conf",))
    except ArgumentError as error:
        return refuse("poslab", f"grid: {error}")
    folder = Path(options["conf"]) if "conf" in options else None
    if folder is not None and not folder.is_dir():
        return refuse("poslab", f"grid: conf={folder} is no folder")

    from poslab.config.option_files import Conf, installed_conf
    from poslab.config.schema import ConfigError
    from poslab.model.pairs import grid

    try:
        print(grid(Conf((*installed_conf().folders, *([folder] if folder else [])))), end="")
    except ConfigError as error:
        return refuse("poslab", f"grid: {error}")
    return 0
