"""What was worked out before, in the user's cache: whoever asks can work it out again.

A file is a guess that may be missing, damaged or old: then it holds nothing. So it is neither synced nor
waited for where the disk is full, unlike the files of a record. Values are found by a key that names all they
were worked out from, such as a SHA-256 of its content, so that no change of the inputs can find an old value.
"""

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from poslab.record.seal import DamagedError, read_sealed, sealed


class Remembered:
    """Values that JSON can hold, by their keys, in the file `path`; `save` writes it."""

    def __init__(self, path: Path, most: int) -> None:
        """Of more than `most` values the oldest are forgotten."""
        self.path = path
        self.most = most
        self._values = _read(path)
        self._saved = set(self._values)

    def get(self, key: str) -> Any:
        """The value, None where there is none."""
        return self._values.get(key)

    def put(self, key: str, value: Any) -> None:
        """Remember a value, which others may change no more, in this process and from `save` on in others."""
        self._values[key] = value

    def save(self) -> None:
        """Write what is new; where that is impossible, nothing happens."""
        if self._values.keys() <= self._saved:
            return
        newest = dict([*self._values.items()][-self.most :])
        self._saved = set(self._values)
        with suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}.")
            try:
                with os.fdopen(handle, "w") as file:
                    file.write(sealed({"values": newest}))
                os.replace(name, self.path)
            except BaseException:
                Path(name).unlink(missing_ok=True)
                raise


def _read(path: Path) -> dict[str, Any]:
    try:
        values = read_sealed(path).get("values")
    except (OSError, DamagedError):
        return {}
    return values if isinstance(values, dict) else {}
