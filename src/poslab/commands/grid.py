"""Which scheme works under which attention."""

from poslab.commands.verb import conf_with, verb

USAGE = """\
Print which positional scheme works under which attention, as a table in Markdown, and why the others do not.

  {command} [conf=DIR]

  conf   a folder with option files of your own (pos/NAME.yaml, attention/NAME.yaml) besides poslab's
"""


@verb("grid", USAGE, ("conf",))
def main(options: dict[str, str]) -> int:
    """Print the table."""
    from poslab.model.pairs import grid

    print(grid(conf_with(options.values())), end="")
    return 0
