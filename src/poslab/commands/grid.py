"""Print which positional scheme works under which attention."""

from poslab.commands.verb import conf_with, verb

USAGE = """\
Print a Markdown table of which positional scheme works under which attention, and why the others do not.

  {command} [conf=DIR]

  conf   a folder with your own option files (pos/NAME.yaml, attention/NAME.yaml), besides poslab's
"""


@verb("grid", USAGE, ("conf",))
def main(options: dict[str, str]) -> int:
    """Print the table."""
    from poslab.model.pairs import grid

    print(grid(conf_with(options.values())), end="")
    return 0
