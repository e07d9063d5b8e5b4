"""Which scheme works under which attention."""

from pathlib import Path

from poslab.commands.verb import verb
from poslab.config.arguments import ArgumentError, read_options

USAGE = """\
Print which positional scheme works under which attention, as a table in Markdown, and why the others do not.

  {command} [conf=DIR]

  conf   a folder with option files of your own (pos/NAME.yaml, attention/NAME.yaml) besides poslab's
"""


@verb("grid", USAGE)
def main(arguments: list[str]) -> int:
    """Print the table."""
    options = read_options(arguments, ("conf",))
    folders = [Path(options["conf"])] if "conf" in options else []
    if folders and not folders[0].is_dir():
        raise ArgumentError(f"conf={folders[0]} is no folder")

    from poslab.config.option_files import Conf, installed_conf
    from poslab.model.pairs import grid

    print(grid(Conf((*installed_conf().folders, *folders))), end="")
    return 0
