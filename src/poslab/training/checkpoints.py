"""States that a run can go on from, and the trained model that a finished run has left.

    <run>/checkpoints/00000400-5f2b1c0d9e8a7766.pt     the step, and the first digits of the content's SHA-256
    <run>/checkpoint.pt                                the final weights, whose SHA-256 is in the manifest

Files are written whole or not at all and checked when they are read. A state's name holds its checksum: a
second file for it could be lost in a crash between the two.
"""

import hashlib
import io
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from poslab.config.registry import find
from poslab.config.request import Config
from poslab.config.schema import ConfigError, check
from poslab.model import positions
from poslab.model.gpt import GPT, build
from poslab.model.positions import LearnedOptions, Scheme
from poslab.record.files import write_atomic
from poslab.record.manifest import damaged_files, read_manifest
from poslab.record.schema import FINAL, Manifest
from poslab.record.seal import DamagedError

FORMAT = 2  # of what a checkpoint holds
STATES = 2  # of a run: should the newest be damaged, there is the one before
NAME = re.compile(r"(\d{8,})-([0-9a-f]{16})\.pt")

# The settings that a checkpoint leaves out, since they do not decide the result.
NOT_DECIDING: Mapping[str, Any] = {
    "study": "loaded",
    "question": None,
    "tune": {"factors": [], "scheme_factors": [], "seeds": []},
    "reference": None,
    "primary": None,
    "logger": {"name": "local"},
    "launcher": {"name": "local"},
}
# The settings that older checkpoints lack, with the values under which they were trained.
EARLIER: Mapping[str, Any] = {"probe": {"tasks": []}, "part": "comparison"}


def to_bytes(content: Mapping[str, Any]) -> bytes:
    """`content` is tensors and plain values only, so that loading with weights_only=True is enough."""
    buffer = io.BytesIO()
    torch.save(dict(content), buffer)
    return buffer.getvalue()


def from_bytes(data: bytes) -> dict[str, Any]:
    """The content that `to_bytes` was given, tensors on the CPU. Unpickles tensors and plain values only."""
    content: dict[str, Any] = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    return content


def write_checkpoint(folder: Path, step: int, content: Mapping[str, Any]) -> None:
    """Add a state of tensors and plain values, and remove all but the newest STATES."""
    data = to_bytes(content)
    path = folder / f"{step:08d}-{hashlib.sha256(data).hexdigest()[:16]}.pt"
    write_atomic(path, data)
    others = [older for older in _newest_first(folder) if older != path]
    for old in others[STATES - 1 :]:
        old.unlink(missing_ok=True)


def newest_checkpoint(folder: Path, identity: str, note: Callable[[str], None]) -> dict[str, Any] | None:
    """The newest undamaged state of the run `identity`; damaged ones are removed, with a line to `note`."""
    for path in _newest_first(folder):
        data = path.read_bytes()
        name = NAME.fullmatch(path.name)
        assert name is not None
        if hashlib.sha256(data).hexdigest()[:16] != name[2]:
            note(f"{path} is damaged and is left out")
            path.unlink(missing_ok=True)
            continue
        content = from_bytes(data)
        if content.get("identity") == identity and content.get("format") == FORMAT:
            return content
    return None


def _newest_first(folder: Path) -> list[Path]:
    names = {path: NAME.fullmatch(path.name) for path in folder.glob("*.pt")}
    steps = {path: int(name[1]) for path, name in names.items() if name is not None}
    return sorted(steps, key=lambda path: (steps[path], path.stat().st_mtime_ns), reverse=True)


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
        try:
            gpt.load_state_dict(dict(self.weights))
        except RuntimeError:  # its message has a line for each name
            raise ConfigError("the weights do not fit the model: they were made by other code") from None
        return gpt.eval()


def _with_rates(section: Mapping[str, Any]) -> dict[str, Any]:
    """A scheme's section, those inside it too, with the rate of 1 that older checkpoints do not name."""
    rates = {}
    if "scheme" in section:
        kind = find(section["scheme"], Scheme, positions.__name__, "pos.scheme")
        rates = {"rate": 1.0} if issubclass(kind.options_class, LearnedOptions) else {}
    inner = {key: _with_rates(value) for key, value in section.items() if isinstance(value, Mapping)}
    return {**rates, **section, **inner}


def load_model(directory: Path) -> GPT:
    """The trained model of a run's directory, in evaluation mode on the CPU. Raises ConfigError."""
    trained = read_trained_model(directory)
    return trained.gpt(check(Config, trained.settings, ""))


def read_trained_model(directory: Path) -> TrainedModel:
    """The trained model of a run's directory. Raises ConfigError, DamagedError where a file is damaged."""
    manifest = read_manifest(directory)
    if manifest is None or FINAL not in (manifest.files or {}):
        raise ConfigError(f"{directory} holds no finished run")
    path = directory / FINAL
    if FINAL in damaged_files(directory, manifest.files, FINAL):
        raise DamagedError(f"{path} is damaged" if path.exists() else f"{path} is missing")
    try:
        saved = from_bytes(path.read_bytes())
        settings = {**EARLIER, **saved["config"], **NOT_DECIDING}
        settings["trainer"] = {"scheme_rate": 1.0, **settings["trainer"], "checkpoint_seconds": 0}
        settings["pos"] = _with_rates(settings["pos"])
        return TrainedModel(manifest, settings, saved["weights"], int(saved["threads"]))
    except Exception as error:  # anything: the checksum is right, but the content is not what this reads
        raise DamagedError(f"{path} is not a checkpoint of this version: {type(error).__name__}") from None
