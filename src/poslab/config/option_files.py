"""The option files in poslab's own conf/ and in the folders that a user or another package adds.

A package adds a folder with an entry point in the group `poslab.conf`: its value is the folder's name as a
package. A user adds one with --config-dir. Folders are in Hydra's order: if two files have the same name, the
first one is used.
"""

import importlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from io import StringIO
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from yaml import YAMLError  # type: ignore[import-untyped]

from poslab.config.checking import did_you_mean
from poslab.config.installation import conf_folder
from poslab.config.schema import ConfigError
from poslab.config.text import one_line

ENTRY_POINTS = "poslab.conf"
LABEL = "label"  # key for an option's name in tables and legends, if not the file's name


@dataclass(frozen=True)
class Conf:
    """The folders of option files, each with one subfolder per group; the first has config.yaml."""

    folders: tuple[Path, ...]

    def file(self, group: str, option: str) -> Path:
        """Return the file of `group=option`. Raise ConfigError, with the nearest ones, if none exists."""
        for folder in self.folders:
            path = folder / group / f"{option}.yaml"
            if path.is_file():
                return path
        raise ConfigError(absent(group, str(option), self.options(group)))

    def groups(self) -> set[str]:
        """Return the names of the groups."""
        return {path.name for folder in self.folders for path in folder.iterdir() if path.is_dir()}

    def options(self, group: str) -> list[str]:
        """Return the names of a group's options, sorted."""
        return sorted({path.stem for folder in self.folders for path in (folder / group).glob("*.yaml")})


def absent(group: str, option: str, options: Iterable[str]) -> str:
    """Return the message for an option that a group lacks, with the nearest options and all options."""
    known = list(options)
    return f"{group}={option} does not exist{did_you_mean(option, known)}; the options are {', '.join(known)}"


def load(path: Path) -> Mapping[str, Any]:
    """Return the settings in an option's file, merged over those of the options in its `defaults`."""
    content = {key: value for key, value in _read(path).items() if key != LABEL}
    if isinstance(names := content.get("defaults"), list) and all(isinstance(name, str) for name in names):
        del content["defaults"]
        folders = path.parent, conf_folder() / path.parent.name
        files = [folder / f"{name}.yaml" for name in names if name != "_self_" for folder in folders]
        bases = [load(file) for file in files if file.is_file() and file != path]
        merged: Any = OmegaConf.to_container(OmegaConf.merge(*bases, content))
        return dict(merged)
    return content


def label_in(path: Path) -> str | None:
    """Return the label in an option's file, if it has one."""
    return _read(path).get(LABEL)


def _read(path: Path) -> Mapping[str, Any]:
    try:
        content = _parsed(path.read_text())
    except YAMLError as error:
        raise ConfigError(one_line(error).replace('"<file>"', str(path))) from None
    if not isinstance(content, dict):
        raise ConfigError(f"{path} is a list: an option file contains settings, NAME: VALUE")
    return content


@cache  # by the content: a sweep has thousands of runs with the same few files
def _parsed(text: str) -> Any:
    return OmegaConf.to_container(OmegaConf.load(StringIO(text)))


@cache
def package_folders() -> tuple[Path, ...]:
    """Return the option folders of installed packages. Raise ConfigError if one cannot be imported."""
    folders = []
    for entry in sorted(entry_points(group=ENTRY_POINTS), key=lambda entry: entry.name):
        try:
            folders.append(_of_package(entry.value))
        except ImportError as error:
            raise ConfigError(
                f"{ENTRY_POINTS}: {entry.name} = {entry.value} is not a package: {error}"
            ) from None
    return tuple(folders)


def installed_conf() -> Conf:
    """Return poslab's own folder of option files and those of other packages."""
    return Conf((conf_folder(), *package_folders()))


def conf_of(sources: Iterable[Any]) -> Conf:
    """Return the folders among Hydra's config sources, except Hydra's own."""
    return Conf(
        tuple(
            Path(source.path) if source.schema == "file" else _of_package(source.path.replace("/", "."))
            for source in sources
            if source.provider != "hydra" and source.schema in ("file", "pkg")  # not structured configs
        )
    )


def _of_package(name: str) -> Path:
    return Path(next(iter(importlib.import_module(name).__path__)))
