"""The trained model of a finished run, checked against the checksums of its record."""

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
    """A finished run's record and weights, checked against their checksums."""

    manifest: Manifest
    settings: Mapping[str, Any]  # the whole configuration of its training, to be checked as Config
    weights: Mapping[str, Tensor]
    threads: int  # of PyTorch in training: the bits of sums depend on them

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
    """Put weights into a model. Raise ConfigError where they are not all of its weights."""
    try:
        gpt.load_state_dict(dict(weights))
    except RuntimeError:  # its message has a line for each name
        raise ConfigError("the weights do not fit the model: they are from other code") from None


def load_model(directory: Path) -> GPT:
    """Return the trained model of a run's directory, in evaluation mode on the CPU. Raise ConfigError."""
    trained = read_trained_model(directory)
    return trained.gpt(check(Config, trained.settings, ""))


def read_trained_model(directory: Path) -> TrainedModel:
    """Read the trained model of a run's directory. Raise ConfigError, DamagedError for a damaged file."""
    # A folder may have any name, as for a model from W&B, but not that of another run.
    manifest = read_manifest(directory, anywhere=RUN.fullmatch(directory.name) is None)
    files = (manifest and manifest.files) or {}
    if manifest is None or FINAL not in files:
        why = "is not the folder of a finished run" if directory.is_dir() else "does not exist"
        raise ConfigError(f"{directory} {why}: name a run directory such as runs/STUDY/RUN")
    path = directory / FINAL
    if damaged_files(directory, {FINAL: files[FINAL]}):
        state = "damaged" if path.exists() else "missing"
        raise DamagedError(f"{path} is {state}: the command that trained the run trains it again")
    try:
        saved = trained_state(path, str(manifest.identity))
    except UnreadableError as error:
        raise type(error)(
            f"{path} {error}: train it again, or use the version of poslab that wrote it"
        ) from None
    return TrainedModel(manifest, settings_of(saved["config"]), saved["weights"], int(saved["threads"]))


def settings_of(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Return a whole configuration from the settings that decide a run's result, to be checked as Config."""
    trainer = {**recorded["trainer"], "checkpoint_seconds": 0}
    return {**recorded, **BESIDE_THE_RESULT, "trainer": trainer}
