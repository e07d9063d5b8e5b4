"""The identity of a run: a hash of everything that decides its result, so that no run is repeated.

It covers the checked configuration, the content of the data and the meaning of the code that the run's parts
reach (meaning.py; comments and docstrings do not count). Code that only measures a trained model has a
separate fingerprint: when it changes, the weights are measured again. Rewritten code that was verified to
train to the same losses, or to measure the same, counts as the code that it replaced (record/facts.py).
"""

import hashlib
import json
import platform
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import astuple, dataclass
from functools import lru_cache
from importlib import import_module
from importlib.util import resolve_name
from pathlib import Path
from typing import Any

from poslab.config.registry import module_name, named_in, part_names, source_of
from poslab.config.request import Start
from poslab.config.schema import SHARING, ConfigError, RunConfig
from poslab.data.directories import planning_directory
from poslab.record.facts import recipe
from poslab.record.remembered import Remembered
from poslab.study.run.meaning import imports, meaning

POSLAB = "poslab"
TRAINING = (  # the modules that turn a configuration and data into weights
    "poslab.data.cache",
    "poslab.data.windows",
    "poslab.data.questions",
    "poslab.model.gpt",
    "poslab.training.loop",
)
MEASURES = "poslab.measures"
DURING_TRAINING = {"validations", "validation_windows"}  # the settings of evaluate that training reads
LIBRARIES = {"pytorch_lightning", "lightning", "torch"}  # their callbacks have no fingerprint
PARSED = 2000  # the number of sources with cached imports and meaning
_IMPORTED: dict[Path, bytes] = {}  # the sources of imported modules, as they were first seen


@dataclass(frozen=True)
class Code:
    """Fingerprints of the code on which a run's numbers can depend, 16 hexadecimal digits each."""

    shared: str  # of the training code that all runs share
    parts: str  # of the run's own scheme, attention, objective and callbacks
    evaluation: str  # of the code that evaluates a trained model, the same for all schemes and attentions


def code_fingerprints(config: RunConfig) -> Code:
    """Return the fingerprints of a run's code; for verified rewritten code, those of the code it replaced."""
    return Code(*map(recipe, astuple(own_fingerprints(config))))


def own_fingerprints(config: RunConfig) -> Code:
    """Return SHA-256 over the meaning of all modules that a run reaches, also in packages of its parts."""
    shared = sources(TRAINING)
    parts = {name: path for name, path in sources(part_modules(config)).items() if name not in shared}
    # Without the model, so that it is the same for all arms: a run's scheme and attention are in `parts`.
    evaluation = {
        name: path
        for name, path in sources(measuring()).items()
        if name not in shared and not name.startswith(f"{POSLAB}.model.")
    }
    return Code(_digest(shared), _digest(parts), _digest(evaluation))


def check_imported(config: RunConfig) -> None:
    """Raise ConfigError if a source that the run needs has changed since this process imported it.

    The run would use the older code, and its record would name the new code.
    """
    parts = [name for name in part_modules(config) if source_of(name) is not None]
    for name in parts:  # import now, so that the imported code is that of the files
        with suppress(Exception):  # planning the run reports the error
            import_module(name)
    for name, path in sources([*TRAINING, *measuring(), *parts]).items():
        imported = imported_source(name)
        if imported is not None and _parsed(imported)["meaning"] != _parsed(path.read_bytes())["meaning"]:
            raise ConfigError(f"{path} has changed since this program imported it: start Python again")


def imported_source(name: str) -> bytes | None:
    """Return a module's source as it was at the first call; None if the module is not imported.

    Python imports a module only once, even if its file changes later. Reloading a module does not count,
    since other modules may have imported names from the old one.
    """
    path = source_of(name) if name in sys.modules else None
    if path is None:
        return None
    if path not in _IMPORTED:
        _IMPORTED[path] = path.read_bytes()
    return _IMPORTED[path]


def measuring() -> list[str]:
    """Return the names of all modules with measurements, which turn weights into the tables of a record."""
    return [module_name(name, MEASURES) for name in part_names(MEASURES)]


def part_modules(config: RunConfig) -> tuple[str, ...]:
    """Return the modules of the schemes, the mixers, the objective and the callbacks of a configuration.

    Callbacks of Lightning and PyTorch are left out, since the versions of these libraries are recorded.
    """
    schemes = (
        module_name(name, "poslab.model.positions") for name in sorted({*named_in(config.pos, "scheme")})
    )
    kinds = sorted({*named_in(config.attention, "kind")})
    attentions = (module_name(name, "poslab.model.attention") for name in kinds)
    callbacks = (_module_of(name, spec["_target_"]) for name, spec in sorted(config.callbacks.items()))
    custom = (name for name in callbacks if name.partition(".")[0] not in LIBRARIES)
    objective = module_name(str(config.objective.get("kind")), "poslab.objectives")
    return (*schemes, *attentions, objective, *custom)


def _module_of(name: str, target: str) -> str:
    """Return the name of the module with a callback's class. Raise ConfigError if there is none."""
    module = target
    while module := module.rpartition(".")[0]:
        if source_of(module) is not None:
            return module
    raise ConfigError(f"callbacks.{name}._target_={target}: no module of that name can be imported")


def source_fingerprint(modules: Iterable[str]) -> str:
    """Return the fingerprint of `modules` and all their imports. Raise FileNotFoundError like `sources`."""
    return _digest(sources(modules))


def _digest(sources: dict[str, Path]) -> str:
    digest = hashlib.sha256()
    for name, path in sorted(sources.items()):
        if content := _parsed(path.read_bytes())["meaning"]:
            digest.update(f"{name}\0{content}\0".encode())
    return digest.hexdigest()[:16]


def run_identity(config: RunConfig, code: Code, data_fingerprint: str, start: Start | None = None) -> str:
    """Return the hash of a run, 12 hexadecimal digits, including its data and the weights it starts from."""
    begun = () if start is None else (start.identity, start.checkpoint)
    return _hash(config.result_settings(), code.shared, code.parts, data_fingerprint, *begun)


def weights_identity(settings: Mapping[str, Any], *parts: str | None) -> str:
    """Return a hash of all that decides a run's weights and curve: `run_identity` without the evaluation."""
    evaluate = {key: value for key, value in settings["evaluate"].items() if key in DURING_TRAINING}
    return _hash({**settings, "evaluate": evaluate}, *parts)


def _hash(settings: Mapping[str, Any], *parts: str | None) -> str:
    trainer = {**settings["trainer"], **SHARING}  # the number of devices does not count
    del trainer["strategy"]
    data = {key: value for key, value in settings["data"].items() if key != "path"}
    text = json.dumps([{**settings, "data": data, "trainer": trainer}, *parts], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def run_name(labels: tuple[str, str], seed: int, identity: str) -> str:
    """Return the name of the run's directory: readable, and unique because it ends with the identity."""
    readable = "-".join([*labels, f"seed{seed}"])
    safe = "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in readable)
    return f"{safe[:80]}-{identity}"


def sources(modules: Iterable[str]) -> dict[str, Path]:
    """Return the files of `modules` and of every module that they import, directly or indirectly.

    Only modules of poslab and of the packages of `modules` count; the latter with `__init__.py`, which runs
    first. Raise FileNotFoundError if one of `modules` has no file, since changes in it would not be noticed.
    The parsed sources are cached.
    """
    files: dict[str, Path] = {}
    modules = list(modules)
    packages = {name.partition(".")[0] for name in modules} | {POSLAB}
    for name in modules:
        if source_of(name) is None:
            raise FileNotFoundError(f"the source of {name}, which decides a run's result, does not exist")
    pending = modules
    while pending:
        name = pending.pop()
        path = None if name in files else source_of(name)
        if path is not None:
            files[name] = path
            inside = name if path.name == "__init__.py" else name.rpartition(".")[0]
            imported = [resolve_name(item, inside) for item in _parsed(path.read_bytes())["imports"]]
            pending += [item for item in imported if item.partition(".")[0] in packages and item != POSLAB]
            if name.partition(".")[0] != POSLAB and "." in name:
                pending.append(name.rpartition(".")[0])
    _cache(planning_directory()).save()
    return files


@lru_cache(maxsize=1)
def _cache(folder: Path) -> Remembered:
    return Remembered(folder / "sources.json", PARSED)


def _parsed(content: bytes) -> dict[str, Any]:
    """Return the `imports` of a source, as they are spelled there, and its `meaning`.

    Parsing takes most of the time of a fingerprint, so the result is cached, by the content of the source: a
    file can change without a change of its time or size.
    """
    cache, key = _cache(planning_directory()), f"{_reader()} {hashlib.sha256(content).hexdigest()}"
    known: dict[str, Any] | None = cache.get(key)
    if known is None:
        known = {"imports": imports(content), "meaning": meaning(content)}
        cache.put(key, known)
    return known


@lru_cache
def _reader() -> str:
    """Return a key for the code that reads sources and for the version of Python."""
    reader = Path(__file__).with_name("meaning.py").read_bytes()
    return f"{platform.python_version()} {hashlib.sha256(reader).hexdigest()[:16]}"
