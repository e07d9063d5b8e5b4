"""Where text comes from: one module a source, found by its name, so that adding one touches no other file.

A source is a module of this package with a class `Source` below `TextSource`: its fields are the options of
`data` in the configuration, its methods give the documents.
"""

import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

from pydantic import field_validator

from poslab.config.schema import ConfigError, Options, check

MOST_ENTRIES = 2**20


class TextSource(Options, ABC):
    """The options that every source has, and what it gives. Documents are UTF-8 without NUL bytes."""

    source: str
    vocabulary: Literal["bytes"] | int

    pinned: ClassVar[bool] = False
    """Whether the options alone fix the text, so that prepared data can be found without reading it."""

    @field_validator("vocabulary", mode="before")
    @classmethod
    def _bytes_or_entries(cls, value: Any) -> Any:
        if value == "bytes" or (type(value) is int and 256 < value <= MOST_ENTRIES):
            return value
        raise ValueError(f"{value!r} is neither bytes nor the entries of a BPE (257 to {MOST_ENTRIES:,})")

    @abstractmethod
    def label(self) -> str:
        """What reports call this text; no path, since reports are published."""

    @abstractmethod
    def read(self) -> Iterator[bytes]:
        """The documents in an order that is the same everywhere. Raises ConfigError."""

    def read_validation(self) -> Iterator[bytes] | None:
        """Documents to validate on, or None: then a part of `read` is held out."""
        return None


def names() -> list[str]:
    return [module.name for module in pkgutil.iter_modules(__path__)]


def find(data: Mapping[str, Any]) -> TextSource:
    """The source that `data.source` names, with its options checked. Raises ConfigError."""
    name = data.get("source")
    if name not in names():
        raise ConfigError(f"data.source={name!r} is not a source of text; there are {', '.join(names())}")
    kind: type[TextSource] = importlib.import_module(f"{__name__}.{name}").Source
    return check(kind, dict(data), "data")
