"""Write the weights of a finished run as safetensors, for other programs."""

from pathlib import Path

from poslab.commands.verb import verb
from poslab.config.arguments import ArgumentError, read_options

USAGE = """\
Write the weights of a finished run as safetensors, with its configuration, for other programs.

  {command} checkpoint=PATH [to=FILE]

  checkpoint  a run directory (runs/<study>/<run>) or its checkpoint.pt
  to          the file, which ends in .safetensors; default: model.safetensors in the run directory

poslab.load(FILE) gives the model back in Python, to the bit, on any machine that has poslab.
"""


@verb("export", USAGE)
def main(arguments: list[str]) -> int:
    """Write the file and print its size."""
    options = read_options(arguments, ("checkpoint", "to"))
    if "checkpoint" not in options:
        raise ArgumentError("give checkpoint=PATH: a run directory or its checkpoint.pt")
    from poslab.library.weights import export

    path = export(Path(options["checkpoint"]), Path(options["to"]) if "to" in options else None)
    print(f"{path}, {path.stat().st_size / 1e6:,.1f} MB")
    return 0
