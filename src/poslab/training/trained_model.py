"""The model that a finished run has left."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from poslab.config.request import Config
from poslab.config.schema import ConfigError, check
from poslab.model.gpt import GPT, build
from poslab.record.files import DamagedError
from poslab.record.manifest import damaged_files, read_manifest
from poslab.record.schema import FINAL, Manifest
from poslab.training.checkpoints import unpacked

# What a checkpoint does not hold, since it decides nothing of the result.
BESIDE: Mapping[str, Any] = {
    "study": "loaded",
    "question": None,
    "tune": {"factors": [], "seeds": []},
    "reference": None,
    "logger": {"name": "local"},
    "launcher": {"name": "local"},
}
EARLIER: Mapping[str, Any] = {
    "probe": {"tasks": []},
    "part": "comparison",
}  # what older checkpoints stand for


@dataclass(frozen=True)
class Trained:
    """A finished run's record and weights, checked against their checksums."""

    manifest: Manifest
    settings: Mapping[str, Any]  # the whole configuration that it was trained with, to be checked as Config
    weights: Mapping[str, Tensor]
    threads: int  # that PyTorch split its sums by

    @property
    def digest(self) -> str:
        """The SHA-256 of the checkpoint."""
        return (self.manifest.files or {})[FINAL]

    @property
    def vocabulary(self) -> int:
        return self.weights["embedding.weight"].shape[0]


def load(directory: Path) -> GPT:
    """The trained model of a run directory, in evaluation mode on the CPU. Raises ConfigError."""
    trained = read(directory)
    return with_weights(check(Config, trained.settings, ""), trained)


def read(directory: Path) -> Trained:
    """What a run directory holds of its trained model. Raises ConfigError, DamagedError for a bad file."""
    manifest = read_manifest(directory)
    if manifest is None or FINAL not in (manifest.files or {}):
        raise ConfigError(f"{directory} holds no finished run")
    path = directory / FINAL
    if FINAL in damaged_files(directory, manifest.files, FINAL):
        raise DamagedError(f"{path} is damaged" if path.exists() else f"{path} is missing")
    try:
        saved = unpacked(path.read_bytes())
        settings = {**EARLIER, **saved["config"], **BESIDE}
        settings["trainer"] = {**saved["config"]["trainer"], "checkpoint_seconds": 0}
        return Trained(manifest, settings, saved["weights"], int(saved["threads"]))
    except Exception as error:  # whatever a file raises whose seal is right and whose content is none
        raise DamagedError(f"{path} is not a checkpoint of this version: {type(error).__name__}") from None


def with_weights(config: Config, trained: Trained) -> GPT:
    """The model that `config` describes with the trained weights, in evaluation mode. Raises ConfigError."""
    gpt = build(config, trained.vocabulary)
    try:
        gpt.load_state_dict(dict(trained.weights))
    except RuntimeError:  # a line for each name
        raise ConfigError("the weights do not fit the model: they were made by other code") from None
    return gpt.eval()
