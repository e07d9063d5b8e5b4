"""Write the weights of a finished run as safetensors, for other programs."""

from pathlib import Path

from poslab.config.arguments import FAILED, ArgumentError, help_requested, read_options, refuse
from poslab.config.installation import title, typed

USAGE = """\
Write the weights of a finished run as safetensors, with its configuration, for other programs.

  {command} checkpoint=PATH [to=FILE]

  checkpoint  a run directory (runs/<study>/<run>) or its checkpoint.pt
  to          the file, which ends in .safetensors; default: model.safetensors in the run directory

poslab.load(FILE) gives the model back in Python, to the bit, on any machine that has poslab.
"""
KEYS = ("checkpoint", "to")


def main(arguments: list[str]) -> int:
    """Return exit status 0, 1 where the file cannot be written, or 2 where the command is wrong."""
    if help_requested(arguments, USAGE.format(command=typed("export"))):
        return 0
    try:
        options = read_options(arguments, KEYS)
    except ArgumentError as error:
        return refuse(title("export"), str(error))
    if "checkpoint" not in options:
        return refuse(title("export"), "give checkpoint=PATH: a run directory or its checkpoint.pt")

    # After the arguments, so that a mistake in them is answered at once.
    from poslab.config.schema import ConfigError
    from poslab.config.text import error_text, one_line
    from poslab.library.weights import export

    try:
        path = export(Path(options["checkpoint"]), Path(options["to"]) if "to" in options else None)
    except ConfigError as error:
        return refuse(title("export"), one_line(error))
    except OSError as error:
        return refuse(title("export"), error_text(error), FAILED)
    print(f"{path}, {path.stat().st_size / 1e6:,.1f} MB")
    return 0
