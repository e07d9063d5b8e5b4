"""Computed values in the user's cache, which can all be computed again.

A missing, damaged or old file counts as empty, so writing one does not wait on a full disk. The key of a
value covers all its inputs, for example by a SHA-256 of their content, so changed inputs never get an old
value.
"""

from contextlib import suppress
from pathlib import Path
from typing import Any

from poslab.record.files import replace_file
from poslab.record.seal import DamagedError, read_sealed, sealed


class Remembered:
    """Values that JSON can represent, by key, in the file `path`; `save` writes it."""

    def __init__(self, path: Path, most: int) -> None:
        """Read the file. `save` drops the oldest values beyond `most`."""
        self.path = path
        self.most = most
        self._values = _read(path)
        self._saved = set(self._values)

    def get(self, key: str) -> Any:
        """Return the value; None if there is none."""
        return self._values.get(key)

    def put(self, key: str, value: Any) -> None:
        """Store a value, which must not change later. Other processes can read it after `save`."""
        self._values[key] = value

    def save(self) -> None:
        """Write the file if there are new values; errors of the file system are ignored."""
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
