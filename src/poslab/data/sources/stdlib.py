"""The source of Python's standard library: real text with long-range structure, found on every machine.

It differs between Python versions; the fingerprint in a run's record identifies the text.
"""

import os
import platform
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import Field

from poslab.data.sources import TextSource
from poslab.data.verification import files_state

# These are not the library itself: its tests, and programs that some distributions leave out.
LEFT_OUT = {"test", "tests", "idlelib", "lib2to3", "turtledemo", "ensurepip", "site-packages", "__pycache__"}


class Source(TextSource):
    source: Literal["stdlib"] = Field(description="the module that reads the text")

    def label(self) -> str:
        return f"Python {platform.python_version()} standard library"

    def read(self) -> Iterator[bytes]:
        """Yield the .py file of each module, sorted by path."""
        yield from filter(None, (path.read_bytes() for path in _modules()))

    def files_state(self) -> str | None:
        """Return the state of all these files."""
        return files_state(_modules())


def _modules() -> list[Path]:
    root = Path(sysconfig.get_path("stdlib"))
    modules = []
    for folder, below, files in os.walk(root):
        below[:] = [name for name in below if name not in LEFT_OUT]
        for path in (Path(folder, name) for name in files if name.endswith(".py")):
            module = path.relative_to(root).parts[0].removesuffix(".py")
            if module in sys.stdlib_module_names and module not in LEFT_OUT:
                modules.append(path)
    return sorted(modules)
