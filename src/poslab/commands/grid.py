"""Which scheme works under which attention."""

from poslab.commands.verb import conf_with, verb
from poslab.config.arguments import read_options

USAGE = """\
Print which positional scheme works under which attention, as a table in Markdown, and why the others do not.

  {command} [conf=DIR]

  conf   a folder with option files of your own (pos/NAME.yaml, attention/NAME.yaml) besides poslab's
"""


@verb("grid", USAGE)
def main(arguments: list[str]) -> int:
    """Print the table."""
    conf = conf_with(read_options(arguments, ("conf",)).values())

    from poslab.model.pairs import grid

    print(grid(conf), end="")
    return 0
