"""The trained model that a finished run has left, checked against the checksums of its record."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from poslab.config.checking import check
from poslab.config.request import BESIDE_THE_RESULT, Config
from poslab.config.schema import ConfigError
from poslab.model.gpt import GPT, build
from poslab.record.facts import Manifest
from poslab.record.manifest import damaged_files, read_manifest
from poslab.record.schema import FINAL
from poslab.record.seal import DamagedError, UnreadableError
from poslab.training.checkpoints import trained_state

RUN = re.compile(r".+-[0-9a-f]{12}")  # how the directory of a run is called


@dataclass(frozen=True)
class TrainedModel:
    """A finished run's record and weights, checked against their checksums."""

    manifest: Manifest
    settings: Mapping[str, Any]  # the whole configuration that it was trained with, to be checked as Config
    weights: Mapping[str, Tensor]
    threads: int  # that PyTorch split its sums over

    @property
    def digest(self) -> str:
        """The SHA-256 of the checkpoint."""
        return (self.manifest.files or {})[FINAL]

    @property
    def vocabulary(self) -> int:
        return self.weights["embedding.weight"].shape[0]

    def gpt(self, config: Config) -> GPT:
        """The model that `config` describes with these weights, in evaluation mode. Raises ConfigError."""
        gpt = build(config, self.vocabulary)
        fill_with(gpt, self.weights)
        return gpt.eval()


def fill_with(gpt: GPT, weights: Mapping[str, Tensor]) -> None:
    """Put weights into a model. Raises ConfigError where they are not all of its weights."""
    try:
        gpt.load_state_dict(dict(weights))
    except RuntimeError:  # its message has a line for each name
        raise ConfigError("the weights do not fit the model: they were made by other code") from None


def load_model(directory: Path) -> GPT:
    """The trained model of a run's directory, in evaluation mode on the CPU. Raises ConfigError."""
    trained = read_trained_model(directory)
    return trained.gpt(check(Config, trained.settings, ""))


def read_trained_model(directory: Path) -> TrainedModel:
    """The trained model of a run's directory. Raises ConfigError, DamagedError where a file is damaged."""
    # A model may lie in a folder of any name, as one from W&B does, but not in that of another run.
    manifest = read_manifest(directory, anywhere=RUN.fullmatch(directory.name) is None)
    files = (manifest and manifest.files) or {}
    if manifest is None or FINAL not in files:
        there = directory.is_dir()
        raise ConfigError(
            f"{directory} {'holds no finished run' if there else 'does not exist: name a run directory'}"
        )
    path = directory / FINAL
    if damaged_files(directory, {FINAL: files[FINAL]}):
        what = "damaged" if path.exists() else "missing"
        raise DamagedError(f"{path} is {what}: the command that made the run makes it again")
    try:
        saved = trained_state(path.read_bytes(), str(manifest.identity))
    except UnreadableError as error:
        raise type(error)(
            f"{path} {error}: train it again, or use the version of poslab that wrote it"
        ) from None
    settings = {**saved["config"], **BESIDE_THE_RESULT}
    settings["trainer"] = {**settings["trainer"], "checkpoint_seconds": 0}
    return TrainedModel(manifest, settings, saved["weights"], int(saved["threads"]))
