"""The trained model of a finished run, verified by the checksums in its record."""

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
from poslab.objectives import build_objective
from poslab.record.facts import Manifest
from poslab.record.manifest import damaged_files, read_manifest
from poslab.record.schema import FINAL
from poslab.record.seal import DamagedError, UnreadableError
from poslab.training.checkpoints import trained_state

RUN = re.compile(r".+-[0-9a-f]{12}")  # the name of a run's directory


@dataclass(frozen=True)
class TrainedModel:
    """A finished run's record and weights, verified by their checksums."""

    manifest: Manifest
    settings: Mapping[str, Any]  # the complete configuration of its training, to validate as Config
    weights: Mapping[str, Tensor]
    threads: int  # of PyTorch in training: the last bits of sums depend on them

    @property
    def digest(self) -> str:
        """The SHA-256 of the checkpoint."""
        return (self.manifest.files or {})[FINAL]

    def gpt(self, config: Config) -> GPT:
        """Build the model of `config` with these weights, in evaluation mode. Raise ConfigError."""
        rows = self.weights["embedding.weight"].shape[0]
        gpt = build(config, rows - build_objective(config.objective).extra_tokens)
        fill_with(gpt, self.weights)
        return gpt.eval()


def fill_with(gpt: GPT, weights: Mapping[str, Tensor]) -> None:
    """Load weights into a model. Raise ConfigError if they do not match the model."""
    try:
        gpt.load_state_dict(dict(weights))
    except RuntimeError:  # its message has a line per name
        raise ConfigError("the weights do not fit the model: they are from other code") from None


def load_model(directory: Path) -> GPT:
    """Return the trained model in a run's directory, in evaluation mode on the CPU. Raise ConfigError."""
    trained = read_trained_model(directory)
    return trained.gpt(check(Config, trained.settings, ""))


def read_trained_model(directory: Path) -> TrainedModel:
    """Read the trained model in a run's directory. Raise ConfigError, or DamagedError for a damaged file."""
    # A folder may have any name, as with a model from W&B, except the name of another run.
    manifest = read_manifest(directory, anywhere=RUN.fullmatch(directory.name) is None)
    files = (manifest and manifest.files) or {}
    if manifest is None or FINAL not in files:
        why = "is not the folder of a finished run" if directory.is_dir() else "does not exist"
        raise ConfigError(f"{directory} {why}: name a run directory such as runs/STUDY/RUN")
    path = directory / FINAL
    if damaged_files(directory, {FINAL: files[FINAL]}):
        state = "damaged" if path.exists() else "missing"
        raise DamagedError(f"{path} is {state}: repeat the command that trained the run to train it again")
    try:
        saved = trained_state(path, str(manifest.identity))
    except UnreadableError as error:
        raise type(error)(
            f"{path} {error}: train it again, or use the version of poslab that wrote it"
        ) from None
    return TrainedModel(manifest, settings_of(saved["config"]), saved["weights"], int(saved["threads"]))


def settings_of(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Return a complete configuration, to validate as Config, from the settings that decide a result."""
    trainer = {**recorded["trainer"], "checkpoint_seconds": 0}
    return {**recorded, **BESIDE_THE_RESULT, "trainer": trainer}
