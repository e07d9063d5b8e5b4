"""Trained models for other programs: loaded from a run, and exported as safetensors.

    runs/<study>/<run>/model.safetensors    written by `poslab export checkpoint=runs/<study>/<run>`

The header's metadata contains the run's name and configuration under `poslab`, so no other file is needed.
Other libraries read the tensors as usual.
"""

import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from poslab.config.checking import check
from poslab.config.request import Config
from poslab.config.schema import CAUSAL, ConfigError
from poslab.data.tokens import tokenizer_of_bytes
from poslab.model.gpt import GPT
from poslab.objectives import build_objective
from poslab.record.facts import Manifest
from poslab.record.files import write_atomic
from poslab.record.schema import EXPORTED, FINAL, TOKENIZER
from poslab.record.seal import UnreadableError
from poslab.training.trained import TrainedModel, load_model, read_trained_model, settings_of

SUFFIX = ".safetensors"
FORMAT = 2  # version of the metadata under `poslab`


def check_next_token(objective: Mapping[str, Any], remedy: str = "choose another run") -> None:
    """Raise ConfigError if a model with this objective does not predict each next token."""
    built = build_objective(objective)
    if not built.causal or (built.reads_text and objective != CAUSAL):
        kind = objective["kind"]
        raise ConfigError(f"a model of objective.kind={kind} does not predict each next token: {remedy}")


def load(run: str | PathLike[str]) -> GPT:
    """Load the trained model of a finished run, in evaluation mode on the CPU.

    `run` is the run's directory (`runs/<study>/<run>`), its `checkpoint.pt`, or a file that `poslab.export`
    wrote, in any place. Called with tokens (B, T), the model returns the logits (B, T, vocabulary) of the
    token after each. Only tensors and plain values are unpickled. Raise a one-line ConfigError if there is no
    such run or file, or if a run is damaged.
    """
    path = Path(run).expanduser()
    return _exported(path) if path.suffix == SUFFIX else load_model(run_directory(path))


def export(
    run: str | PathLike[str],
    to: str | PathLike[str] | None = None,
    format: Literal["safetensors", "transformers"] = "safetensors",
) -> Path:
    """Write the weights of a finished run for other programs, and return the path of the file or folder.

    `run` is the run's directory. For safetensors, `to` is a file, by default `model.safetensors` in that
    directory. Its metadata contains the run's configuration as JSON, and `poslab.load` reads the same model
    back to the bit. For transformers, `to` is a folder that `AutoModelForCausalLM.from_pretrained` opens, by
    default `transformers` in that directory. Raise ConfigError if the run is unfinished or damaged, if a
    safetensors `to` does not end in `.safetensors`, or for transformers if the model does not predict each
    next token.
    """
    if format not in (known := ("safetensors", "transformers")):
        raise ConfigError(f"format={format}: choose {' or '.join(known)}")
    if format == "transformers":
        from poslab.library.to_transformers import export_transformers

        return export_transformers(run, to)
    directory = run_directory(run)
    path = directory / EXPORTED if to is None else Path(to).expanduser()
    if path.suffix != SUFFIX:
        raise ConfigError(f"to={path} must end in {SUFFIX}")
    trained = read_trained_model(directory)
    config = check(Config, trained.settings, "")
    facts = {
        "format": FORMAT,
        "run": trained.manifest.run,
        "study": trained.manifest.study,
        "identity": trained.manifest.identity,
        "checkpoint": trained.digest,
        "config": config.result_settings(),
    }
    # An older checkpoint gets today's names, too. The format allows no shared memory: a shared tensor is
    # written once for each of its names.
    weights = trained.gpt(config).state_dict()
    tensors = {name: tensor.contiguous().clone() for name, tensor in weights.items()}
    write_atomic(path, save(tensors, {"format": "pt", "poslab": json.dumps(facts)}))
    return path


def run_directory(run: str | PathLike[str]) -> Path:
    """Return the directory of a run, given it or its checkpoint. Raise ConfigError for another file."""
    directory = Path(run).expanduser()
    if directory.is_file() and directory.name == FINAL:
        directory = directory.parent
    if directory.is_file():
        raise ConfigError(f"{directory} is not a run: name a run directory such as runs/STUDY/RUN")
    return directory


def tokenizer_json(directory: Path, config: Config) -> bytes:
    """Return the tokenizer.json of a run: that of its text, or one with a token for each byte."""
    if config.data.get("vocabulary") in ("bytes", None):
        return tokenizer_of_bytes().encode()
    return (directory / TOKENIZER).read_bytes()


def _exported(path: Path) -> GPT:
    """Load the model in a file that `export` wrote. Raise ConfigError for another file."""
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"{path} cannot be read ({error})") from None
    if "poslab" not in metadata:
        raise ConfigError(f"{path} was not written by poslab: load its tensors with safetensors itself")
    facts = json.loads(metadata["poslab"])
    if facts["format"] != FORMAT:
        raise UnreadableError(
            f"{path} has format {facts['format']}, but this version reads {FORMAT}: export the run again"
        )
    settings = settings_of(facts["config"])
    try:
        return TrainedModel(Manifest(), settings, tensors, threads=1).gpt(check(Config, settings, ""))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
