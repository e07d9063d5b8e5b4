"""JSON with a seal: it ends with the SHA-256 of all its bytes, and a changed file is not read.

This is a separate module since prepared data are sealed too and are part of a run's identity: a change of
this code makes every finished run stale.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from poslab.config.schema import ConfigError

UNSEALED = "0" * 64


class UnreadableError(ConfigError):
    """Error raised if this version cannot read a file; the message names it."""


class DamagedError(UnreadableError):
    """Error raised if a file has changed since it was written, or has content that no run can write."""


def sealed(value: Mapping[str, Any]) -> str:
    """Return JSON that ends with the SHA-256 of all its bytes, computed with zeros in its place."""
    text = json.dumps({**value, "sha256": UNSEALED}, indent=2, ensure_ascii=False) + "\n"
    digest = hashlib.sha256(text.encode()).hexdigest()
    head, _, tail = text.rpartition(UNSEALED)
    return f"{head}{digest}{tail}"


def read_sealed(path: Path) -> dict[str, Any]:
    """Return the value in a sealed file. Raise FileNotFoundError, or DamagedError if any bit has changed."""
    return unsealed(path.read_bytes(), path)


def unsealed(data: bytes, name: object) -> dict[str, Any]:
    """Return the value in the bytes of a sealed file. Raise DamagedError with a message about `name`."""
    seal = re.search(rb'"sha256": "([0-9a-f]{64})"\n\}\n$', data)
    if seal is not None:
        begin, end = seal.span(1)
        if hashlib.sha256(data[:begin] + UNSEALED.encode() + data[end:]).hexdigest().encode() == seal[1]:
            # Content with a right seal may still not be JSON.
            with suppress(ValueError, RecursionError):
                value: dict[str, Any] = json.loads(data)
                value.pop("sha256")
                return value
    raise DamagedError(f"{name} is damaged")
