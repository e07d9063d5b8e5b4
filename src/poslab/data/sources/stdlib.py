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

from poslab.config.schema import ConfigError
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
        modules = _modules()
        if not modules:
            raise ConfigError(
                f"data=stdlib finds no .py files in {_root()}; use data=text data.path=FILE or data=copy"
            )
        for path in modules:
            content = path.read_bytes()
            if content and b"\0" not in content and _is_utf8(content):
                yield content

    def files_state(self) -> str | None:
        """Return the state of all these files."""
        return files_state(_modules())


def _root() -> Path:
    return Path(sysconfig.get_path("stdlib"))


def _modules() -> list[Path]:
    root = _root()
    modules = []
    for folder, below, files in os.walk(root):
        below[:] = [name for name in below if name not in LEFT_OUT]
        for path in (Path(folder, name) for name in files if name.endswith(".py")):
            module = path.relative_to(root).parts[0].removesuffix(".py")
            if module in sys.stdlib_module_names and module not in LEFT_OUT:
                modules.append(path)
    return sorted(modules)


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True
