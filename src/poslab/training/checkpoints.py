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
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from poslab.config.registry import find
from poslab.config.request import BESIDE_THE_RESULT, Config
from poslab.config.schema import ConfigError, check
from poslab.model import positions
from poslab.model.gpt import GPT, build
from poslab.model.positions import LearnedOptions, Scheme
from poslab.record.files import remove_unfinished, write_atomic
from poslab.record.manifest import damaged_files, read_manifest
from poslab.record.schema import FINAL, MANIFEST, Manifest
from poslab.record.seal import DamagedError, UnreadableError

FORMAT = 2  # of the final weights
STATE_FORMAT = 3  # of a state: Lightning's checkpoint, with what says whose it is
READABLE = (2,)
STATES = 2  # of a run: should the newest be damaged, there is the one before
NAME = re.compile(r"(\d{8,})-([0-9a-f]{16})\.pt")
RUN = re.compile(r".+-[0-9a-f]{12}")  # how the directory of a run is called
ASIDE = ".other"  # behind the name of a file that is called as a state but is none of the run

# The settings that older checkpoints lack, with the values under which they were trained.
EARLIER: Mapping[str, Any] = {"probe": {"tasks": []}, "part": "comparison"}


# Beside whose a file is (format, identity), in both kinds: the settings, PyTorch's threads, the rows of
# metrics.csv so far, and the kernel of the attention.
FACTS = {"config", "threads", "rows", "kernel"}
OF_LIGHTNING = {
    "global_step",
    "state_dict",
    "optimizer_states",
    "lr_schedulers",
    "loops",
    "callbacks",
    "sums",
}


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
    """The newest whole state of the run `identity`.

    Others are left out, with a line to `note`: damaged ones are removed, and those whose checksum is right
    but which are not of this run get another name: they neither count as its states nor are removed.
    """
    for path in _newest_first(folder):
        name = NAME.fullmatch(path.name)
        assert name is not None
        try:
            data = path.read_bytes()
        except FileNotFoundError:  # another of the run's processes has left it out meanwhile
            continue
        if hashlib.sha256(data).hexdigest()[:16] != name[2]:
            note(f"{path} is damaged and is left out")
            path.unlink(missing_ok=True)
            continue
        try:
            return state_of(data, identity, int(name[1]))
        except UnreadableError as error:
            note(f"{path} {error}: it is left out, as {path.name}{ASIDE}")
            with suppress(OSError):
                path.rename(f"{path}{ASIDE}")
    return None


def state_of(data: bytes, identity: str, step: int) -> dict[str, Any]:
    """The state after `step` in a file whose checksum is right, from which a run resumes.

    Raises UnreadableError, whose message goes on after the file's name.
    """
    state = _content(data, identity, STATE_FORMAT)
    if not (state.keys() >= FACTS | OF_LIGHTNING and state["global_step"] == step):
        raise DamagedError("lacks a part of the state of its run")
    return state


def trained_state(data: bytes, identity: str) -> dict[str, Any]:
    """The final `step`, `weights` and `batches` of a run that has trained. Raises as `state_of`."""
    state = _content(data, identity, FORMAT)
    if not state.keys() >= FACTS | {"step", "weights", "validation_seconds", "sums"}:
        raise DamagedError("lacks a part of the state of its run")
    return state


def _content(data: bytes, identity: str, number: int) -> dict[str, Any]:
    try:
        content = from_bytes(data)
        found, whose = content["format"], content["identity"]
    except Exception:  # whatever it is, no state is in it
        raise DamagedError("holds no state of a run") from None
    if found != number:
        raise UnreadableError(f"has format {found}, which this version does not read")
    if whose != identity:
        raise UnreadableError("is a state of another run")
    return content


def remove_states(folder: Path) -> None:
    """Remove the states of a run that needs them no more, and their folder if nothing else is in it.

    Nothing is removed through a link: whoever has made one knows what else lies there.
    """
    if folder.is_symlink():
        return
    for path in _newest_first(folder):
        path.unlink(missing_ok=True)
    remove_unfinished(folder, is_state)
    with suppress(OSError):
        folder.rmdir()


def is_state(name: str) -> bool:
    """Whether a file is called as a state is."""
    return NAME.fullmatch(name) is not None


def _newest_first(folder: Path) -> list[Path]:
    plain = (path for path in folder.glob("*.pt") if path.is_file() and not path.is_symlink())
    names = {path: NAME.fullmatch(path.name) for path in plain}
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
        fill_with(gpt, self.weights)
        return gpt.eval()


def fill_with(gpt: GPT, weights: Mapping[str, Tensor]) -> None:
    """Put weights into a model. Raises ConfigError where they are not all of its weights."""
    try:
        gpt.load_state_dict(dict(weights))
    except RuntimeError:  # its message has a line for each name
        raise ConfigError("the weights do not fit the model: they were made by other code") from None


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
    # A model may lie in a folder of any name, as one from W&B does, but not in that of another run.
    manifest = read_manifest(directory, anywhere=RUN.fullmatch(directory.name) is None)
    if manifest is None or FINAL not in (manifest.files or {}):
        there = directory.is_dir()
        raise ConfigError(
            f"{directory} {'holds no finished run' if there else 'does not exist: name a run directory'}"
        )
    path = directory / FINAL
    if FINAL in damaged_files(directory, manifest.files, FINAL):
        what = "damaged" if path.exists() else "missing"
        raise DamagedError(f"{path} is {what}: the command that made the run makes it again")
    try:
        saved = from_bytes(path.read_bytes())
        number, whose = saved["format"], saved["identity"]
    except Exception as error:  # anything: the checksum is right, but the content is not what this reads
        raise DamagedError(f"{path} is no checkpoint of a run: {type(error).__name__}") from None
    if number not in READABLE:
        later = isinstance(number, int) and number > FORMAT
        advice = "use the version of poslab that wrote it" if later else "train it again"
        raise UnreadableError(f"{path} has format {number}, which this version does not read: {advice}")
    if whose != manifest.identity:
        raise DamagedError(f"{path} is of another run than the {MANIFEST} beside it")
    try:
        settings = {**EARLIER, **saved["config"], **BESIDE_THE_RESULT}
        settings["trainer"] = {"scheme_rate": 1.0, **settings["trainer"], "checkpoint_seconds": 0}
        settings["pos"] = _with_rates(settings["pos"])
        return TrainedModel(manifest, settings, saved["weights"], int(saved["threads"]))
    except Exception as error:
        raise DamagedError(f"{path} is not a checkpoint of this version: {type(error).__name__}") from None
