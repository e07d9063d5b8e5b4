"""Write the weights of a finished run for other programs: as safetensors, or as a folder for transformers."""

from poslab.commands.verb import verb
from poslab.config.errors import UserError

USAGE = """\
Write the weights of a finished run, with its configuration, for other programs.

  {command} checkpoint=PATH [format=safetensors|transformers] [to=PATH]

  checkpoint  a run directory (runs/<study>/<run>) or its checkpoint.pt
  format      safetensors (default): poslab.load(FILE) reads the same model back, bit for bit
              transformers: a folder that AutoModelForCausalLM.from_pretrained opens
  to          the file or folder to write; default: model.safetensors or transformers in the run directory
"""


@verb("export", USAGE, ("checkpoint", "format", "to"))
def main(options: dict[str, str]) -> int:
    """Write the file and print its size."""
    if "checkpoint" not in options:
        raise UserError("give checkpoint=PATH: a run directory or its checkpoint.pt")
    from poslab.library.weights import export

    kind = options.get("format", "safetensors")  # checked by export
    path = export(options["checkpoint"], options.get("to"), kind)  # type: ignore[arg-type]
    size = sum(file.stat().st_size for file in ([path] if path.is_file() else path.iterdir()))
    print(f"{path}, {size / 1e6:,.1f} MB")
    if (path / "modeling_poslab.py").exists():
        print("transformers lacks this model: open it with trust_remote_code=True, where poslab is installed")
    return 0
