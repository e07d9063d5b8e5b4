"""The archive of a study's records: one file beside its report, from which the report can be written again.

    <reports>/<study>/records.tar.xz
        <study>/study.json
        <study>/<run>/manifest.json
        <study>/<run>/<table>.csv    those that the manifest lists

It has only what a report reads from each run, finished or not: no weights and no logs. The same records give
the same bytes: files are sorted by name, and times, owners and permissions are the same for all files.
Archives are published, so local paths are cut to their last component, and a sealed file with such a path
gets a new seal.

An archive may come from anyone. So only its plain files with paths inside the target are extracted, into a
temporary directory that is then removed. Seals and checksums are verified as for run directories.
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
# Of the xz settings tried on tables of digits, these compress best.
FOR_TABLES = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "pb": 1}]
DAMAGE = (tarfile.TarError, lzma.LZMAError, EOFError)


def load_available(names: str, runs: Path, reports: Path | None) -> tuple[Records, ...]:
    """Load the records of one study, or of several with names separated by commas.

    A study without records in `runs` is read from its archive in `reports`, unless `reports` is None.
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
    """Load the records of `study` from the bytes written by `pack`; messages name `path`, their file.

    With `several`, run names begin with the study. Raise ReportError if the file is damaged or has no
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
            raise ReportError(f"{path} has no record of a run of study={study}")
        try:
            return replace(load_study(Path(temporary, study), several), archive=path)
        except ReportError as error:
            raise ReportError(f"{path}: {error}") from None


def is_same(packed: bytes, path: Path) -> bool:
    """Return whether the file `path` has the same records, even if another version of xz compressed it."""
    try:
        return lzma.decompress(path.read_bytes()) == lzma.decompress(packed)
    except (OSError, *DAMAGE):
        return False


def archived_runs(packed: bytes) -> set[str]:
    """Return the names of the runs in an archive's bytes; none if it is damaged."""
    with suppress(*DAMAGE):
        return {name.split("/")[1] for name in _files(packed) if name.count("/") > 1}
    return set()


def _files(packed: bytes) -> dict[str, bytes]:
    """Return the contents of the files in an archive's bytes, by path. Raise one of DAMAGE."""
    files = {}
    with tarfile.open(fileobj=io.BytesIO(lzma.decompress(packed))) as tar:
        for entry in tar:  # tarfile has its own filter only since Python 3.11.4
            file = tar.extractfile(entry) if entry.isfile() else None
            if file is None or not all(map(is_file_name, entry.name.split("/"))):
                raise tarfile.TarError
            files[entry.name] = file.read()
    return files


def pack(folder: Path) -> bytes:
    """Return the records of the study in `folder` as the bytes of an archive, which `unpack` reads.

    Raise ReportError if they cannot be archived, and OSError.
    """
    if not is_file_name(folder.name):
        raise ReportError(f"study={plain(folder.name, 60)} cannot be archived: its name begins with a dot")
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        # Put similar tables side by side: xz then compresses better.
        for name, content in sorted(_read(folder).items(), key=lambda file: file[0].rpartition("/")[::-1]):
            entry = tarfile.TarInfo(f"{folder.name}/{name}")
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return lzma.compress(archive.getvalue(), filters=FOR_TABLES)


def _read(folder: Path) -> dict[str, bytes]:
    """Return the files in a study's folder that a report reads, by name, without local paths."""
    files: dict[str, bytes] = {}
    with suppress(FileNotFoundError):
        files[STUDY_LIST] = published_file((folder / STUDY_LIST).read_bytes())
    for run in recorded_runs(folder):
        content = (folder / run / MANIFEST).read_bytes()
        files[f"{run}/{MANIFEST}"] = published_file(content)
        try:
            tables = parse_manifest(content).tables
        except UnreadableError:  # a report cannot read its tables either
            tables = {}
        for name in filter(is_file_name, tables):
            with suppress(OSError):  # a report lists the run with its missing file
                files[f"{run}/{name}"] = (folder / run / name).read_bytes()
    return files


def published_file(content: bytes) -> bytes:
    """Return a sealed JSON file with every path cut to its last component; b"" if it is damaged."""
    try:
        facts = unsealed(content, "")
    except DamagedError:
        return b""
    public = published(facts)
    return content if public == facts else sealed(public).encode()
