"""The archive of a study's records in one file beside its report, to write the report again from git.

    <reports>/<study>/records.tar.xz
        <study>/study.json
        <study>/<run>/manifest.json
        <study>/<run>/<table>.csv    those that the manifest lists

It holds only what a report reads of every run, finished or not: no weights and no logs. The same records give
the same bytes: files are in the order of their names, and times, owners and permissions are the same for all
files. Archives are published, so paths of the machine are cut to their last name, and a sealed file with such
a path gets a new seal.

An archive may come from anybody. So it is extracted into a temporary directory that is removed at once: only
plain files that lie inside of it. Seals and checksums are checked as for run directories.
"""

import io
import lzma
import tarfile
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from poslab.config.text import is_file_name, plain, published
from poslab.record.manifest import parse_manifest
from poslab.record.reader import Records, ReportError, load_study, requested_studies
from poslab.record.schema import MANIFEST, STUDY_LIST
from poslab.record.seal import DamagedError, UnreadableError, sealed, unsealed
from poslab.record.study_list import recorded_runs, studies

ARCHIVE = "records.tar.xz"
# Of settings of xz that tables of digits were tried with, the ones that pack them tightest.
FOR_TABLES = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "pb": 1}]
DAMAGE = (tarfile.TarError, lzma.LZMAError, EOFError)


def load_available(names: str, runs: Path, reports: Path | None) -> tuple[Records, ...]:
    """Load the records of a study, or of several with commas between their names.

    A study without records in `runs` is read from its archive in the folder `reports`, unless that is None.
    Raise ReportError.
    """
    recorded = studies(runs, recorded=True)
    archived = [] if reports is None else archived_studies(reports)
    requested = requested_studies(names, list(dict.fromkeys([*recorded, *archived])))
    several = len(requested) > 1
    return tuple(
        load_study(runs / study, several)
        if reports is None or study in recorded
        else unpack((path := reports / study / ARCHIVE).read_bytes(), path, study, several)
        for study in requested
    )


def archived_studies(reports: Path) -> list[str]:
    """Return the names of the studies with an archive in `reports`."""
    return sorted(path.parent.name for path in reports.glob(f"[!.]*/{ARCHIVE}") if path.is_file())


def unpack(packed: bytes, path: Path, study: str, several: bool = False) -> Records:
    """Load the records of `study` from the bytes of `pack`, the content of the file `path`.

    With `several`, run names begin with the study. Raise ReportError where the file is damaged or holds no
    records of this study.
    """
    try:
        files = _files(packed)
    except DAMAGE:
        raise ReportError(f"{path} is damaged: its content has changed since it was written") from None
    with tempfile.TemporaryDirectory(prefix="poslab-records-") as temporary:
        for name, content in files.items():
            place = Path(temporary, name)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        if not recorded_runs(Path(temporary, study)):
            raise ReportError(f"{path} holds no record of a run of study={study}")
        try:
            return replace(load_study(Path(temporary, study), several), archive=path)
        except ReportError as error:
            raise ReportError(f"{path}: {error}") from None


def is_same(packed: bytes, path: Path) -> bool:
    """Whether the file `path` holds the same records, even if compressed by another version of xz."""
    try:
        return lzma.decompress(path.read_bytes()) == lzma.decompress(packed)
    except (OSError, *DAMAGE):
        return False


def archived_runs(packed: bytes) -> set[str]:
    """Return the names of the runs in the bytes of `pack`; none where they are damaged."""
    with suppress(*DAMAGE):
        return {name.split("/")[1] for name in _files(packed) if name.count("/") > 1}
    return set()


def _files(packed: bytes) -> dict[str, bytes]:
    """Return the contents of the files in the bytes of `pack`, by their paths. Raise one of DAMAGE."""
    files = {}
    with tarfile.open(fileobj=io.BytesIO(lzma.decompress(packed))) as tar:
        for entry in tar:  # tarfile's own filter came with Python 3.11.4
            file = tar.extractfile(entry) if entry.isfile() else None
            if file is None or not all(map(is_file_name, entry.name.split("/"))):
                raise tarfile.TarError
            files[entry.name] = file.read()
    return files


def pack(folder: Path) -> bytes:
    """Return the records of the study in `folder` as the bytes of an archive, which `unpack` reads.

    Raise ReportError where they cannot be archived, and OSError.
    """
    if not is_file_name(folder.name):
        raise ReportError(f"study={plain(folder.name, 60)} cannot be archived: its name begins with a dot")
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        # Like tables side by side, which xz packs tighter.
        for name, content in sorted(_read(folder).items(), key=lambda file: file[0].rpartition("/")[::-1]):
            entry = tarfile.TarInfo(f"{folder.name}/{name}")
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return lzma.compress(archive.getvalue(), filters=FOR_TABLES)


def _read(folder: Path) -> dict[str, bytes]:
    """Return the files of a study's folder that a report reads, by name, with no path of the machine."""
    files: dict[str, bytes] = {}
    with suppress(FileNotFoundError):
        files[STUDY_LIST] = published_file((folder / STUDY_LIST).read_bytes())
    for run in recorded_runs(folder):
        content = (folder / run / MANIFEST).read_bytes()
        files[f"{run}/{MANIFEST}"] = published_file(content)
        try:
            tables = parse_manifest(content).tables
        except UnreadableError:  # by this version: a report then reads no table either
            tables = {}
        for name in filter(is_file_name, tables):
            with suppress(OSError):  # a report then lists the run with its missing file
                files[f"{run}/{name}"] = (folder / run / name).read_bytes()
    return files


def published_file(content: bytes) -> bytes:
    """Cut every path in a file of JSON to its last name; return nothing for a damaged file."""
    try:
        facts = unsealed(content, "")
    except DamagedError:
        return b""
    public = published(facts)
    return content if public == facts else sealed(public).encode()
