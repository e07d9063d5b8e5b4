"""Finding a part by the name of its module, so that adding one is adding a file."""

import importlib
import pkgutil
from collections.abc import Mapping
from typing import Any, TypeVar

from poslab.config.schema import ConfigError, Options, check, did_you_mean

Part = TypeVar("Part")


def find(name: Any, contract: type[Part], package: str, key: str) -> type[Part]:
    """The public subclass of `contract` in the module `name` of `package`.

    Raises ConfigError, which lists the modules, where there is none of that name.
    """
    folder = importlib.import_module(package)
    names = sorted(module.name for module in pkgutil.iter_modules(folder.__path__))
    if name not in names:
        raise ConfigError(
            f"{key}={name!r} is unknown{did_you_mean(str(name), names)}; there are {', '.join(names)}"
        )
    module = importlib.import_module(f"{package}.{name}")
    parts = [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, contract)
        and value.__module__ == module.__name__
        and not value.__name__.startswith("_")
    ]
    if len(parts) != 1:
        raise TypeError(f"{module.__name__} must define one {contract.__name__}, not {len(parts)}")
    return parts[0]


def options_of(section: Mapping[str, Any], kind: type[Any], selector: str, where: str) -> Options:
    """The options in `section` other than its `selector`, checked against the class that it selects."""
    values = {key: value for key, value in section.items() if key != selector}
    checked: Options = check(kind.options_class, values, where)
    return checked
