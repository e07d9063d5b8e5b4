"""Computed values in the user's cache, which can all be computed again.

A file that is missing, damaged or old holds nothing, so nothing waits for it on a full disk. The key of a
value names all of its inputs, such as a SHA-256 of their content, so that changed inputs never find an old
value.
"""

from contextlib import suppress
from pathlib import Path
from typing import Any

from poslab.record.files import replace_file
from poslab.record.seal import DamagedError, read_sealed, sealed


class Remembered:
    """Values that JSON can hold, by their keys, in the file `path`; `save` writes it."""

    def __init__(self, path: Path, most: int) -> None:
        """Of more than `most` values the oldest are dropped."""
        self.path = path
        self.most = most
        self._values = _read(path)
        self._saved = set(self._values)

    def get(self, key: str) -> Any:
        """Return the value, None where there is none."""
        return self._values.get(key)

    def put(self, key: str, value: Any) -> None:
        """Store a value, which must not change any more: for this process, and after `save` for others."""
        self._values[key] = value

    def save(self) -> None:
        """Write new values; an error of the file system is ignored."""
        if self._values.keys() <= self._saved:
            return
        newest = dict([*self._values.items()][-self.most :])
        self._saved = set(self._values)
        with suppress(OSError):
            replace_file(self.path, sealed({"values": newest}))


def _read(path: Path) -> dict[str, Any]:
    try:
        values = read_sealed(path).get("values")
    except (OSError, DamagedError):
        return {}
    return values if isinstance(values, dict) else {}
