"""The archive of a study's records in one file beside its report, to write the report again from git.

    <reports>/<study>/records.tar.xz
        <study>/study.json
        <study>/<run>/manifest.json
        <study>/<run>/<table>.csv    those that the manifest lists

It holds only what a report reads of every run, finished or not: no weights and no logs. The same records give
the same bytes: names are sorted, and times, owners and permissions are the same for all files. Archives are
published, so paths of the machine are cut to their last name, and a sealed file with such a path gets a new
seal.

An archive may come from anybody. So only plain files with the names above are extracted, up to a limit in
all, into a temporary directory that is removed at once; their seals and checksums are checked as for run
directories.
"""

import io
import lzma
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from poslab.config.text import is_file_name, plain, published
from poslab.record.facts import Manifest
from poslab.record.manifest import parse_manifest
from poslab.record.reader import Records, ReportError, load_study, no_collecting, requested_studies
from poslab.record.schema import MANIFEST, STUDY_LIST, TABLE_SUFFIX
from poslab.record.seal import DamagedError, UnreadableError, sealed, unsealed
from poslab.record.study_list import recorded_runs, studies

KEPT = "records.tar.xz"
LARGEST = 512 * 2**20  # bytes of all files together: the records of more than a thousand runs
DECODER_MEMORY = 128 * 2**20  # bytes; archives of `pack` need 9 MiB


def load_available(names: str, runs: Path, reports: Path | None) -> tuple[Records, ...]:
    """Load the records of a study, or of several with commas between their names.

    A study without records in `runs` is read from its archive in the folder `reports`, unless that is None.
    Raise ReportError.
    """
    recorded = studies(runs, recorded=True)
    archived = [] if reports is None else kept_studies(reports)
    requested = requested_studies(names, list(dict.fromkeys([*recorded, *archived])))
    several = len(requested) > 1
    with no_collecting():
        return tuple(
            load_study(runs / study, several)
            if reports is None or study in recorded
            else load_kept(reports / study / KEPT, study, several)
            for study in requested
        )


def kept_studies(reports: Path) -> list[str]:
    """Return the names of the studies with an archive in `reports`."""
    return sorted(path.parent.name for path in reports.glob(f"[!.]*/{KEPT}") if path.is_file())


def load_kept(path: Path, study: str, several: bool = False) -> Records:
    """Load the records of `study` from the archive `path`; with `several`, run names begin with the study.

    Raise ReportError where the file is damaged or holds anything but records of this study.
    """
    if path.stat().st_size > LARGEST:
        raise ReportError(f"{path} is too large: the records of a study are at most {LARGEST >> 20} MiB")
    return unpack(path.read_bytes(), path, study, several)


def unpack(packed: bytes, path: Path, study: str, several: bool = False) -> Records:
    """Load the records of `study` from the bytes of `pack`, the content of the file `path`.

    Raise ReportError as `load_kept` does.
    """
    with tempfile.TemporaryDirectory(prefix="poslab-records-") as temporary:
        for name, content in _files(_decompressed(packed, path), path, study):
            place = Path(temporary, name)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        if not recorded_runs(Path(temporary, study)):
            raise ReportError(f"{path} holds no record of a run")
        try:
            return replace(load_study(Path(temporary, study), several), kept=path)
        except ReportError as error:
            raise ReportError(f"{path}: {error}") from None


def is_same(packed: bytes, path: Path) -> bool:
    """Whether the file `path` holds the same records, even if compressed by another version of xz."""
    try:
        return _decompressed(path.read_bytes(), path) == _decompressed(packed, path)
    except (OSError, ReportError):
        return False


def _decompressed(packed: bytes, path: Path) -> bytes:
    decompressor = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=DECODER_MEMORY)
    try:
        archive = decompressor.decompress(packed, max_length=LARGEST + 1)
    except (lzma.LZMAError, EOFError):
        raise _damaged(path) from None
    if len(archive) > LARGEST:
        raise ReportError(f"{path} holds more than {LARGEST >> 20} MiB, which no study's records are")
    if not decompressor.eof or decompressor.unused_data:
        raise _damaged(path)
    return archive


def _files(archive: bytes, path: Path, study: str) -> Iterator[tuple[str, bytes]]:
    """Yield the names and contents of the files in a tar archive. Raise ReportError for other entries."""
    seen: set[str] = set()
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as tar:
            for entry in tar:
                name = plain(entry.name, 100)  # safe to print
                content = tar.extractfile(entry) if entry.isreg() else None
                if content is None:
                    raise ReportError(f"{path} holds {name!r}, which is no plain file")
                if entry.name in seen or not _is_of_a_record(entry.name):
                    raise ReportError(f"{path} holds {name!r}, which is no file of a record, or twice")
                if entry.name.partition("/")[0] != study:
                    raise ReportError(f"{path} holds {name!r}, which is of another study than study={study}")
                seen.add(entry.name)
                yield entry.name, content.read()
    except tarfile.TarError:
        raise _damaged(path) from None


def _is_of_a_record(name: str) -> bool:
    _, *within = parts = name.split("/")
    if not all(map(is_file_name, parts)) or len(name) > 255:
        return False
    if len(within) == 1:
        return within == [STUDY_LIST]
    return (
        len(within) == 2
        and within[0] != STUDY_LIST
        and (within[1] == MANIFEST or within[1].endswith(TABLE_SUFFIX))
    )


def _damaged(path: Path) -> ReportError:
    return ReportError(f"{path} is damaged: its content has changed since it was written")


def pack(folder: Path) -> bytes:
    """Return the records of the study in `folder` as the bytes of an archive, which `unpack` reads.

    Raise ReportError where they cannot be archived, and OSError.
    """
    if not is_file_name(folder.name):
        raise ReportError(f"study={plain(folder.name, 60)} cannot be archived: its name begins with a dot")
    files = _read(folder)
    size = sum(map(len, files.values()))
    if size > LARGEST:
        raise ReportError(
            f"study={folder.name} has {size >> 20} MiB of records; the limit is {LARGEST >> 20} MiB"
        )
    archive = io.BytesIO()
    # The oldest of tar's formats that all programs read; it has no fields but those set here.
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.USTAR_FORMAT, encoding="utf-8") as tar:
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(f"{folder.name}/{name}")
            entry.size = len(content)
            try:
                tar.addfile(entry, io.BytesIO(content))
            except ValueError:  # a name with more letters than the format has room for
                raise ReportError(f"{plain(entry.name)} cannot be archived: its name is too long") from None
    return lzma.compress(archive.getvalue())


def _read(folder: Path) -> dict[str, bytes]:
    """Return the files of a study's folder that a report reads, by name, with no path of the machine."""
    files: dict[str, bytes] = {}
    with suppress(FileNotFoundError):
        files[STUDY_LIST] = published_file((folder / STUDY_LIST).read_bytes())
    for run in recorded_runs(folder):
        content = (folder / run / MANIFEST).read_bytes()
        files[f"{run}/{MANIFEST}"] = published_file(content)
        for name in filter(is_file_name, _manifest(content).tables):
            with suppress(OSError):  # a report then lists the run with its missing file
                files[f"{run}/{name}"] = (folder / run / name).read_bytes()
    return files


def _manifest(content: bytes) -> Manifest:
    """Return the manifest, empty where this version cannot read it: a report then reads no table either."""
    try:
        return parse_manifest(content)
    except UnreadableError:
        return Manifest()


def published_file(content: bytes) -> bytes:
    """Cut every path in a file of JSON to its last name; return nothing for a damaged file."""
    try:
        facts = unsealed(content, "")
    except DamagedError:
        return b""
    public = published(facts)
    return content if public == facts else sealed(public).encode()
