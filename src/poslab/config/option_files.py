"""The files that options are: poslab's own conf/, and the folders that a user or another package adds.

Folders are in Hydra's order: of two files of one name the first counts.
"""

import importlib
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from poslab.config.schema import ConfigError
from poslab.config.text import listing


@dataclass(frozen=True)
class Conf:
    """The folders of option files, each with a folder a group inside; the first has config.yaml."""

    folders: tuple[Path, ...]

    def file(self, group: str, option: str) -> Path:
        """The file of `group=option`. Raises ConfigError, which names the nearest options."""
        for folder in self.folders:
            path = folder / group / f"{option}.yaml"
            if path.is_file():
                return path
        options = self.options(group)
        near = get_close_matches(str(option), options, n=3)
        meant = f"did you mean {listing(near)}? " if near else ""
        raise ConfigError(f"{group}={option} does not exist; {meant}there are {', '.join(options)}")

    def options(self, group: str) -> list[str]:
        """The names of a group's options, in order."""
        return sorted({path.stem for folder in self.folders for path in (folder / group).glob("*.yaml")})


def conf_of(sources: Iterable[Any]) -> Conf:
    """The folders among Hydra's config sources, but for Hydra's own."""
    folders = [_folder(source.schema, source.path) for source in sources if source.provider != "hydra"]
    return Conf(tuple(folder for folder in folders if folder is not None))


def _folder(schema: str, path: str) -> Path | None:
    if schema == "file":
        return Path(path)
    if schema != "pkg":  # such as Hydra's structured configs
        return None
    module = importlib.import_module(path.replace("/", "."))
    return Path(next(iter(module.__path__)))
