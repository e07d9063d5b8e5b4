"""Find a part by the name of its module, so that adding a part only means adding a file.

A part is a module in poslab's own package for such parts, a module that an installed package declares as an
entry point of the group in ENTRY_POINTS (entry name: the part's name, value: its module), or any other module
that can be imported, by its dotted name. If poslab has a part with that name, its own part is used.
"""

import importlib
import pkgutil
import sys
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, TypeVar

from poslab.config.checking import check, did_you_mean
from poslab.config.schema import ConfigError, Options

Part = TypeVar("Part")

# Keys: the packages with poslab's own parts.
ENTRY_POINTS = {
    "poslab.model.positions": "poslab.positions",
    "poslab.model.attention": "poslab.attention",
    "poslab.objectives": "poslab.objectives",
    "poslab.data.sources": "poslab.data",
    "poslab.measures": "poslab.measures",
    "poslab.loggers": "poslab.loggers",
}


def find(name: Any, contract: type[Part], package: str, key: str) -> type[Part]:
    """Return the public subclass of `contract` in the module `name`; `package` has poslab's own modules.

    Raise ConfigError if no part has that name (the message lists all parts), if a module of another package
    cannot be imported, or if a module does not define exactly one such class.
    """
    module = module_name(str(name), package)
    source, is_poslabs = source_of(module), module.startswith(f"{package}.")
    if source is None or (is_poslabs and source.name == "__init__.py"):  # a package is not a part
        if declared := declared_modules(package).get(name):
            raise ConfigError(f"{key}={name!r} is declared as the module {declared}, which does not exist")
        names = part_names(package)
        wrong = " is missing" if name is None else f"={name!r} is unknown{did_you_mean(str(name), names)}"
        if package in ENTRY_POINTS:
            names.append("and any module that can be imported, such as mypackage.module")
        raise ConfigError(f"{key}{wrong}; the choices are {', '.join(names)}")
    try:
        members = vars(importlib.import_module(module)).values()
    except Exception as error:  # another package's code may raise anything
        if is_poslabs:
            raise
        raise ConfigError(f"{key}={name!r}: {module} raises {type(error).__name__}: {error}") from error
    kinds = [
        value
        for value in members
        if isinstance(value, type)
        and issubclass(value, contract)
        and value.__module__ == module
        and not value.__name__.startswith("_")
    ]
    if len(kinds) != 1:
        raise ConfigError(f"{key}={name!r}: {module} must define one {contract.__name__}, not {len(kinds)}")
    return kinds[0]


def part_names(package: str) -> list[str]:
    """Return the names of all parts of one kind: poslab's own in `package`, then those of other packages."""
    folder = importlib.import_module(package)
    parts = sorted(module.name for module in pkgutil.iter_modules(folder.__path__) if not module.ispkg)
    return list(dict.fromkeys([*parts, *declared_modules(package)]))


def named_in(section: Any, key: str) -> Iterator[str]:
    """Yield the part that a section names with `key`, then the parts of its subsections (other layers)."""
    if isinstance(section, Mapping):
        if isinstance(section.get(key), str):
            yield section[key]
        for value in section.values():
            yield from named_in(value, key)


def part_name(kind: type[Any], package: str) -> str:
    """Return the name by which `find` returns `kind`; outside `package`, its module's full name."""
    return kind.__module__.removeprefix(f"{package}.")


@lru_cache
def declared_modules(package: str) -> Mapping[str, str]:
    """Return the modules that installed packages add to the parts in `package`, by part name.

    Raise ConfigError if a name is declared for two modules.
    """
    modules: dict[str, str] = {}
    if package not in ENTRY_POINTS:
        return modules
    for entry in sorted(entry_points(group=ENTRY_POINTS[package]), key=lambda entry: entry.name):
        if modules.setdefault(entry.name, entry.module) != entry.module:
            raise ConfigError(
                f"{modules[entry.name]} and {entry.module} are both declared as {entry.name!r} "
                f"({ENTRY_POINTS[package]}): write the module's full name"
            )
    return modules


def module_name(name: str, package: str) -> str:
    """Return the full name of the module for the part `name`, without importing it."""
    module = f"{package}.{name}"
    if source_of(module) is not None:
        return module
    declared = declared_modules(package).get(name, name)
    return declared if source_of(declared) is not None else module


def source_of(name: str) -> Path | None:
    """Return the source file of a module, or None, without importing the module or its packages."""
    loaded = getattr(sys.modules.get(name), "__file__", None)  # a package's path can be extended
    if loaded is not None:
        return Path(loaded)
    search: Any = None
    origin: str | None = None
    parts = name.split(".")
    for end, part in enumerate(parts, start=1):
        if not part.isidentifier() or (end > 1 and search is None):
            return None
        whole = ".".join(parts[:end])
        known = sys.modules.get(whole)
        if known is not None and end < len(parts):
            search = getattr(known, "__path__", None)
            continue
        spec = next(filter(None, (finder.find_spec(whole, search) for finder in sys.meta_path)), None)
        if spec is None:
            return None
        origin, search = spec.origin, spec.submodule_search_locations
    return Path(origin) if origin is not None and origin.endswith(".py") else None


def options_of(section: Mapping[str, Any], kind: type[Any], selector: str, where: str) -> Options:
    """Return the options in `section`, without its `selector`, checked against `kind.options_class`."""
    values = {key: value for key, value in section.items() if key != selector}
    return check(kind.options_class, values, where)
