"""The identity of a run: a hash of all that decides its result, so that no run is repeated.

That is the checked configuration, the content of the data and the meaning of the code that is reached from
the run's own parts (meaning.py: no comment, no docstring). The code that only measures a trained model has a
fingerprint of its own: when it changes, the weights are measured again. Rewritten code that was seen to train
to the same losses, or to measure the same, counts as the code that it replaced (record/facts.py).
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
TRAINING = (  # what turns a configuration and data into weights
    "poslab.data.cache",
    "poslab.data.windows",
    "poslab.data.questions",
    "poslab.model.gpt",
    "poslab.training.loop",
)
MEASURES = "poslab.measures"
DURING_TRAINING = {"validations", "validation_windows"}  # the settings of evaluate that training reads
LIBRARIES = {"pytorch_lightning", "lightning", "torch"}  # their callbacks have no fingerprint
PARSED = 2000  # sources of which imports and meaning are cached
_IMPORTED: dict[Path, bytes] = {}  # the sources of imported modules


@dataclass(frozen=True)
class Code:
    """Fingerprints of the code that a run's numbers can depend on, 16 hexadecimal digits each."""

    shared: str  # of what every run trains with
    parts: str  # of the run's own scheme and attention
    evaluation: str  # of what evaluates a trained model, the same under every scheme and attention


def code_fingerprints(config: RunConfig) -> Code:
    """Return the fingerprints of a run's code; of code that is seen to act alike, that of the first."""
    return Code(*map(recipe, astuple(own_fingerprints(config))))


def own_fingerprints(config: RunConfig) -> Code:
    """Return SHA-256 over the meaning of every module that this run reaches, also in its parts' packages."""
    shared = sources(TRAINING)
    parts = {name: path for name, path in sources(part_modules(config)).items() if name not in shared}
    # The same for all arms: a run's own scheme and attention are in `parts`.
    evaluation = {
        name: path
        for name, path in sources(measuring()).items()
        if name not in shared and not name.startswith(f"{POSLAB}.model.")
    }
    return Code(_digest(shared), _digest(parts), _digest(evaluation))


def check_imported(config: RunConfig) -> None:
    """Raise ConfigError where this process has imported an older source of a run than its file has now.

    The older code would run, and the record would name the new one.
    """
    parts = [name for name in part_modules(config) if source_of(name) is not None]
    for name in parts:  # now, while it is known what their files say
        with suppress(Exception):  # planning the run names it
            import_module(name)
    for name, path in sources([*TRAINING, *measuring(), *parts]).items():
        imported = imported_source(name)
        if imported is not None and _parsed(imported)["meaning"] != _parsed(path.read_bytes())["meaning"]:
            raise ConfigError(f"{path} has changed since this program imported it: start Python again")


def imported_source(name: str) -> bytes | None:
    """Return an imported module's source as it was when this was first called; None: it is not imported.

    Python imports a module once, whatever its file says later. A module that is reloaded does not count as
    new: others may have taken names from the old one.
    """
    path = source_of(name) if name in sys.modules else None
    if path is None:
        return None
    if path not in _IMPORTED:
        _IMPORTED[path] = path.read_bytes()
    return _IMPORTED[path]


def measuring() -> list[str]:
    """Return the modules of all measurements, which turn weights into the tables of a record."""
    return [module_name(name, MEASURES) for name in part_names(MEASURES)]


def part_modules(config: RunConfig) -> tuple[str, ...]:
    """Return the modules of the schemes, the mixers, the objective and the callbacks of a configuration.

    Lightning's and PyTorch's own callbacks are left out: the versions of these libraries are in the record.
    """
    schemes = (
        module_name(name, "poslab.model.positions") for name in sorted({*named_in(config.pos, "scheme")})
    )
    kinds = sorted({*named_in(config.attention, "kind")})
    attentions = (module_name(name, "poslab.model.attention") for name in kinds)
    callbacks = (_module_of(name, spec["_target_"]) for name, spec in sorted(config.callbacks.items()))
    foreign = (name for name in callbacks if name.partition(".")[0] not in LIBRARIES)
    objective = module_name(str(config.objective.get("kind")), "poslab.objectives")
    return (*schemes, *attentions, objective, *foreign)


def _module_of(name: str, target: str) -> str:
    """Return the module of a callback's class. Raises ConfigError where there is none."""
    module = target
    while module := module.rpartition(".")[0]:
        if source_of(module) is not None:
            return module
    raise ConfigError(f"callbacks.{name}._target_={target}: no module of that name can be imported")


def source_fingerprint(modules: Iterable[str]) -> str:
    """Return the fingerprint of `modules` and all their imports. Raises FileNotFoundError like `sources`."""
    return _digest(sources(modules))


def _digest(sources: dict[str, Path]) -> str:
    digest = hashlib.sha256()
    for name, path in sorted(sources.items()):
        if decides := _parsed(path.read_bytes())["meaning"]:
            digest.update(f"{name}\0{decides}\0".encode())
    return digest.hexdigest()[:16]


def run_identity(config: RunConfig, code: Code, data_fingerprint: str, start: Start | None = None) -> str:
    """Return the run's hash, 12 hexadecimal digits; of its data's content and of what it begins from."""
    begun = () if start is None else (start.identity, start.checkpoint)
    return _hash(config.result_settings(), code.shared, code.parts, data_fingerprint, *begun)


def weights_identity(settings: Mapping[str, Any], *parts: str | None) -> str:
    """Return a hash of what decides a run's weights and curve: `run_identity` without later evaluation."""
    evaluate = {key: value for key, value in settings["evaluate"].items() if key in DURING_TRAINING}
    return _hash({**settings, "evaluate": evaluate}, *parts)


def _hash(settings: Mapping[str, Any], *parts: str | None) -> str:
    trainer = {**settings["trainer"], **SHARING}  # as on one device
    del trainer["strategy"]
    data = {key: value for key, value in settings["data"].items() if key != "path"}
    text = json.dumps([{**settings, "data": data, "trainer": trainer}, *parts], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def run_name(labels: tuple[str, str], seed: int, identity: str) -> str:
    """Return the run's directory name: readable, and unique by the identity at its end."""
    readable = "-".join([*labels, f"seed{seed}"])
    safe = "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in readable)
    return f"{safe[:80]}-{identity}"


def sources(modules: Iterable[str]) -> dict[str, Path]:
    """Return the files of `modules` and of every module that they import, directly or not.

    Those of poslab, and for a part of another package those of that package: its `__init__.py` too, which
    runs before the part. Raises FileNotFoundError where one of `modules` has no file: its changes would not
    be noticed.
    """
    files: dict[str, Path] = {}
    modules = list(modules)
    packages = {name.partition(".")[0] for name in modules} | {POSLAB}
    for name in modules:
        if source_of(name) is None:
            raise FileNotFoundError(f"the source of {name}, which decides a run's result, does not exist")
    waiting = modules
    while waiting:
        name = waiting.pop()
        path = None if name in files else source_of(name)
        if path is not None:
            files[name] = path
            inside = name if path.name == "__init__.py" else name.rpartition(".")[0]
            imported = [resolve_name(item, inside) for item in _parsed(path.read_bytes())["imports"]]
            waiting += [item for item in imported if item.partition(".")[0] in packages and item != POSLAB]
            if name.partition(".")[0] != POSLAB and "." in name:
                waiting.append(name.rpartition(".")[0])
    _cache(planning_directory()).save()
    return files


@lru_cache(maxsize=1)
def _cache(folder: Path) -> Remembered:
    return Remembered(folder / "sources.json", PARSED)


def _parsed(content: bytes) -> dict[str, Any]:
    """Return the `imports` of a source, as it spells them, and its `meaning`.

    Parsing takes nearly all of the time of a fingerprint, so its result is cached: by the content and not by
    the file's time or size, which a change can leave as they were.
    """
    cache, key = _cache(planning_directory()), f"{_reader()} {hashlib.sha256(content).hexdigest()}"
    known: dict[str, Any] | None = cache.get(key)
    if known is None:
        known = {"imports": imports(content), "meaning": meaning(content)}
        cache.put(key, known)
    return known


@lru_cache
def _reader() -> str:
    """Return a key for the code that reads sources, under this Python."""
    reader = Path(__file__).with_name("meaning.py").read_bytes()
    return f"{platform.python_version()} {hashlib.sha256(reader).hexdigest()[:16]}"
