"""The identity of a run: a hash of all that decides its result, so that the same run is never made twice.

That is the checked configuration, the content of the data and the code that is reached from the run's own
parts. A new scheme, a change of the report, of a logger or of the progress bar leaves finished runs valid.
The code that only measures a trained model has a fingerprint of its own: where it changes, the trained
weights stay and are measured again.
"""

import ast
import hashlib
import json
import platform
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

from poslab.config.schema import RunConfig
from poslab.data.directories import planning_directory
from poslab.record.remembered import Remembered

PACKAGE = Path(__file__).parents[2]  # of poslab
TRAINING = (  # what turns a configuration and data into weights
    "poslab.data.cache",
    "poslab.data.windows",
    "poslab.data.questions",
    "poslab.model.gpt",
    "poslab.training.loop",
)
EVALUATION = ("poslab.evaluation.measurement",)  # what turns weights into the tables of a record
PARSED = 2000  # sources whose imports are remembered


@dataclass(frozen=True)
class Code:
    """Fingerprints of the source that a run's numbers can depend on, 16 hexadecimal digits each."""

    shared: str  # of what every run trains with
    parts: str  # of the run's own scheme and attention
    evaluation: str  # of what evaluates a trained model and is in neither of the others


def code_fingerprints(config: RunConfig) -> Code:
    """SHA-256 over the source of every poslab module that this run reaches."""
    shared = sources(TRAINING)
    parts = {name: path for name, path in sources(part_modules(config)).items() if name not in shared}
    evaluation = {
        name: path for name, path in sources(EVALUATION).items() if name not in shared and name not in parts
    }
    return Code(_digest(shared), _digest(parts), _digest(evaluation))


def part_modules(config: RunConfig) -> tuple[str, ...]:
    """The modules of the schemes and of the attention that a configuration names."""
    schemes = (f"poslab.model.positions.{name}" for name in sorted(_schemes(config.pos)))
    return (*schemes, f"poslab.model.attention.{config.attention.get('kind')}")


def source_fingerprint(modules: Iterable[str]) -> str:
    """Of `modules` and of all that they import. Raises FileNotFoundError as `sources` does."""
    return _digest(sources(modules))


def _schemes(section: Any) -> set[str]:
    """The schemes that a section names, also in sections inside it: of other layers, of a scheme it wraps."""
    if not isinstance(section, dict):
        return set()
    inner = set().union(*(_schemes(value) for value in section.values()))
    return inner | ({section["scheme"]} if isinstance(section.get("scheme"), str) else set())


def _digest(sources: dict[str, Path]) -> str:
    digest = hashlib.sha256()
    for name, path in sorted(sources.items()):
        digest.update(f"{name}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def run_identity(config: RunConfig, code: Code, data_fingerprint: str) -> str:
    """The run's hash, 12 hexadecimal digits. It depends on the content of the data, not on their path."""
    settings = config.result_settings()
    settings["data"].pop("path", None)
    text = json.dumps([settings, code.shared, code.parts, data_fingerprint], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def run_name(labels: tuple[str, str], seed: int, identity: str) -> str:
    """The run's directory name: readable, and unique by the identity at its end."""
    readable = "-".join([*labels, f"seed{seed}"])
    safe = "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in readable)
    return f"{safe[:80]}-{identity}"


def sources(modules: Iterable[str]) -> dict[str, Path]:
    """The files of `modules` and of every poslab module that they import, directly or not.

    Raises FileNotFoundError where one of `modules` has no file: without it, its changes would go unnoticed.
    """
    files: dict[str, Path] = {}
    modules = list(modules)
    for name in modules:
        if _file(name) is None:
            raise FileNotFoundError(f"the source of {name}, which decides what a run is, is not in {PACKAGE}")
    parsed = _parsed(planning_directory() / "imports.json")
    waiting = modules
    while waiting:
        name = waiting.pop()
        path = None if name in files else _file(name)
        if path is not None:
            files[name] = path
            waiting += _imported(path, parsed)
    parsed.save()
    return files


def _file(name: str) -> Path | None:
    """A module's source file, without importing it; None where `name` is not a module."""
    if name in sys.modules:  # it may lie elsewhere: a package's path can be extended
        return Path(str(sys.modules[name].__file__))
    inside = PACKAGE.joinpath(*name.split(".")[1:])
    candidates = (inside / "__init__.py", inside.with_suffix(".py"))
    return next((path for path in candidates if path.is_file()), None)


@lru_cache(maxsize=1)
def _parsed(path: Path) -> Remembered:
    return Remembered(path, PARSED)


def _imported(path: Path, parsed: Remembered) -> list[str]:
    """The poslab modules that a source imports, and whatever it imports from them.

    Parsing takes nearly all of the time of a fingerprint, so what it gave is remembered: by the content and
    not by the file's time or size, which a change can leave as they were.
    """
    content = path.read_bytes()
    key = f"{_reader()} {hashlib.sha256(content).hexdigest()}"
    names: list[str] | None = parsed.get(key)
    if names is None:
        names = _names(ast.parse(content))
        parsed.put(key, names)
    return names


version = lru_cache(metadata.version)  # each takes a millisecond


@lru_cache
def _reader() -> str:
    """What gives a source's imports: this module, under this Python."""
    return f"{platform.python_version()} {hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:16]}"


def _names(source: ast.Module) -> list[str]:
    names: list[str] = []
    for node in ast.walk(source):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return [name for name in names if name.startswith("poslab.")]


def describe_versions() -> dict[str, str]:
    """Versions that may change a result's last digits: in the record, but not in the identity."""
    versions = {"python": platform.python_version()}
    for name in ("torch", "pytorch-lightning", "numpy", "tokenizers", "wandb", "poslab"):
        with suppress(
            metadata.PackageNotFoundError
        ):  # W&B where it is not used, poslab where it is on the path alone
            versions[name] = version(name)
    return versions
