"""Trained models for other programs: loaded from a run, and exported as safetensors.

    runs/<study>/<run>/model.safetensors    written by `poslab export checkpoint=runs/<study>/<run>`

The header's metadata has under `poslab` the run's name and configuration, so that no other file is needed.
Other libraries read the tensors as from any file of this format. Like a record the file is sealed: the
metadata hold the SHA-256 of the whole file, computed with zeros in its place.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as read_tensors
from safetensors.torch import save as write_tensors

from poslab.config.checking import check
from poslab.config.request import BESIDE_THE_RESULT, Config
from poslab.config.schema import ConfigError
from poslab.model.gpt import GPT
from poslab.record.facts import Manifest
from poslab.record.files import write_atomic
from poslab.record.manifest import read_manifest
from poslab.record.schema import EXPORTED, FINAL
from poslab.record.seal import UNSEALED, DamagedError, UnreadableError
from poslab.training.trained import TrainedModel, load_model, read_trained_model

SUFFIX = ".safetensors"
FORMAT = 1  # of the metadata under `poslab`
SEAL = re.compile(rb'\\"sha256\\": \\"([0-9a-f]{64})\\"')
LENGTH = 8  # bytes that hold the length of the header
ALIGNED = 8  # bytes: the header's length is a multiple


def load(run: str | PathLike[str]) -> GPT:
    """Load the trained model of a finished run, in evaluation mode on the CPU.

    `run` is the run's directory (`runs/<study>/<run>`), its `checkpoint.pt`, or a file of `poslab.export` in
    any place. Called with tokens (B, T), the model returns the logits (B, T, vocabulary) of the token after
    each. Unpickles only tensors and plain values. Raise ConfigError, one line, where there is no such run or
    a file is damaged.
    """
    path = Path(run).expanduser()
    if path.suffix == SUFFIX:
        return _exported(path)
    if path.is_file() and path.name == FINAL:
        path = path.parent
    if not path.is_dir():
        why = "is no run" if path.exists() else "does not exist"
        raise ConfigError(f"{path} {why}: name a run directory such as runs/STUDY/RUN, or its {EXPORTED}")
    return load_model(path)


def export(run: str | PathLike[str], to: str | PathLike[str] | None = None) -> Path:
    """Write the weights of a finished run as safetensors; return the path of the file.

    `run` is the run's directory and `to` the file, by default `model.safetensors` in that directory. Its
    metadata have the run's configuration as JSON, and `poslab.load` reads it back to the bit. The same run
    gives the same bytes. Raise ConfigError where the run is not finished or damaged, or where `to` does not
    end in `.safetensors`.
    """
    directory = Path(run).expanduser()
    if directory.is_file() and directory.name == FINAL:
        directory = directory.parent
    path = directory / EXPORTED if to is None else Path(to).expanduser()
    if path.suffix != SUFFIX:
        raise ConfigError(f"to={path} must end in {SUFFIX}")
    if directory.is_file():
        raise ConfigError(f"{directory} is no run: name a run directory such as runs/STUDY/RUN")
    trained = read_trained_model(directory)
    config = check(Config, trained.settings, "")
    facts = {
        "format": FORMAT,
        "run": trained.manifest.run,
        "study": trained.manifest.study,
        "identity": trained.manifest.identity,
        "checkpoint": trained.digest,
        "config": config.result_settings(),
        "sha256": UNSEALED,
    }
    # By today's names, also for an older checkpoint. The format allows no shared memory: a shared tensor is
    # written for each of its names.
    weights = trained.gpt(config).state_dict()
    tensors = {name: tensor.contiguous().clone() for name, tensor in weights.items()}
    write_atomic(path, _sealed(write_tensors(tensors, {"format": "pt", "poslab": json.dumps(facts)})))
    return path


def _sealed(data: bytes) -> bytes:
    """Return the file with its seal, and with a header that is the same for the same content."""
    header, begin = _header(data)
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))  # the library's order varies
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNED)
    head, tensors = len(text).to_bytes(LENGTH, "little") + text, data[begin:]
    seal = SEAL.search(head)
    assert seal is not None
    digest = hashlib.sha256(head + tensors).hexdigest().encode()
    return head[: seal.start(1)] + digest + head[seal.end(1) :] + tensors


def _header(data: bytes) -> tuple[dict[str, Any], int]:
    """Return the header of a file, and where the tensors begin. Raise ValueError."""
    begin = LENGTH + int.from_bytes(data[:LENGTH], "little")
    header = json.loads(data[LENGTH:begin])
    if not isinstance(header, dict):
        raise ValueError("no header")
    return header, begin


def _exported(path: Path) -> GPT:
    """Load the model in a file of `export`. Raise ConfigError."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror})") from None
    facts = _facts(data, path)
    _check_place(facts, path)
    try:
        tensors = read_tensors(data)
        config = _config(facts["config"])
        return TrainedModel(Manifest(), facts["config"], tensors, threads=1).gpt(config)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise DamagedError(f"{path} holds no model of this version: {type(error).__name__}") from None


def _facts(data: bytes, path: Path) -> Mapping[str, Any]:
    """Return the metadata of a file, if its seal is right. Raise ConfigError."""
    facts: Any = None
    with suppress(ValueError, RecursionError, KeyError, TypeError):  # a file of any other kind
        header, begin = _header(data)
        facts = json.loads(header["__metadata__"]["poslab"])
    if not isinstance(facts, dict):
        raise ConfigError(f"{path} was not written by poslab: load its tensors with safetensors itself")
    seal = SEAL.search(data, LENGTH, begin)
    if seal is None or _digest_without(data, *seal.span(1)) != seal[1]:
        raise DamagedError(f"{path} is damaged: export the run again")
    if facts.get("format") != FORMAT:
        raise UnreadableError(
            f"{path} has format {facts.get('format')}, which this version does not read: "
            "use the version of poslab that wrote it"
        )
    return facts


def _digest_without(data: bytes, begin: int, end: int) -> bytes:
    digest = hashlib.sha256(data[:begin])
    digest.update(UNSEALED.encode())
    digest.update(memoryview(data)[end:])
    return digest.hexdigest().encode()


def _check_place(facts: Mapping[str, Any], path: Path) -> None:
    """Raise DamagedError where the file is beside the record of a run with other weights."""
    if path.name != EXPORTED:
        return
    try:
        manifest = read_manifest(path.parent, anywhere=True)
    except (ConfigError, OSError):  # the file is complete without it
        return
    final = None if manifest is None else (manifest.files or {}).get(FINAL)
    if final is not None and final != facts.get("checkpoint"):
        raise DamagedError(f"{path} has other weights than the run in this folder: export it again")


def _config(settings: Mapping[str, Any]) -> Config:
    trainer = {**settings["trainer"], "checkpoint_seconds": 0}  # which decides no result
    return check(Config, {**settings, **BESIDE_THE_RESULT, "trainer": trainer}, "")
