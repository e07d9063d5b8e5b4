"""study.json: the requested runs of a study, its question, reference, tested figure and commands.

It has no results: if it is lost, the study's command writes it again from the runs.
"""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator

from poslab.config.text import NAME, is_file_name, plain
from poslab.record.active_runs import active_runs
from poslab.record.files import remove_unfinished, write_sealed
from poslab.record.locks import file_lock
from poslab.record.manifest import parse_record
from poslab.record.schema import MANIFEST, STUDY_LIST
from poslab.record.seal import DamagedError

FORMAT = 3  # the format of lists that this version writes; the earliest have no number
UNNAMED = "ablation"  # the study of commands without study=; its report is on the last command
WAIT = 600.0  # seconds to wait for another command that is writing the same list
# Names that would lead out of the study's folder are dropped.
Names = Annotated[
    tuple[str, ...],
    BeforeValidator(lambda names: tuple(filter(is_file_name, names)) if isinstance(names, list) else names),
]


@dataclass(frozen=True)
class StudyList:
    """A study as requested by its commands."""

    study: str = ""
    runs: Names = ()  # names of directories in the study's folder, in the order requested
    reference: str | None = None  # the arm that the others are compared with
    question: str | None = None  # the question that the study should answer
    commands: tuple[str, ...] = ()
    primary: str | None = None  # the figure that the report tests; None, as in older lists: the default
    latest: Names = ()  # the runs of the last command, if the report is on these only


def read_study_list(folder: Path) -> StudyList | None:
    """Read the list of the study in `folder`; None if there is none.

    Raise OtherFormatError, DamagedError (also if it is the list of another study) and OSError.
    """
    path = folder / STUDY_LIST
    try:
        listed = parse_study_list(path.read_bytes(), path)
    except FileNotFoundError:
        return None
    if listed.study and listed.study != Path(os.path.abspath(folder)).name:
        raise DamagedError(f"{path} is the list of study {plain(listed.study, 100)}, not of this folder")
    return listed


def parse_study_list(data: bytes, name: object) -> StudyList:
    """Parse a list from the bytes of its file, as `parse_record` does."""
    return parse_record(StudyList, data, name, range(1, FORMAT + 1))


def enlist(
    folder: Path,
    names: Sequence[str],
    command: str,
    reference: str | None = None,
    question: str | None = None,
    primary: str | None = None,
) -> None:
    """Add runs to the list of the study in `folder`, in the order in which they were requested.

    If `reference`, `question` or `primary` is not given, the list keeps its own. In the study UNNAMED, all
    three are those of the last command, and its runs are marked as the latest. Raise TakenError if another
    command has locked the list for more than WAIT seconds, and OtherFormatError.
    """
    with file_lock(folder / ".study.lock", WAIT):
        remove_unfinished(folder, STUDY_LIST.__eq__)
        known = _known(folder)
        commands, latest = dict.fromkeys([*known.commands, command]), tuple(names)
        if folder.name == UNNAMED:
            known = replace(known, reference=None, question=None, primary=None)
            commands = dict.fromkeys([*(line for line in known.commands if line != command), command])
        # Drop requested runs that never began and that no running command has, perhaps from older code.
        missing = {name for name in known.runs if not (folder / name / MANIFEST).exists()}
        dropped = missing - active_runs(folder).keys() if missing else missing
        write_study_list(
            folder,
            StudyList(
                folder.name,
                tuple(dict.fromkeys([*(name for name in known.runs if name not in dropped), *names])),
                reference or known.reference,
                question or known.question,
                tuple(commands),
                primary or known.primary,
                latest if folder.name == UNNAMED else (),
            ),
        )


def write_study_list(folder: Path, listed: StudyList) -> None:
    """Write the list, to be read with `read_study_list`."""
    write_sealed(folder / STUDY_LIST, {"format": FORMAT, **asdict(listed)})


def _known(folder: Path) -> StudyList:
    try:
        return read_study_list(folder) or StudyList(folder.name)
    except DamagedError as error:
        print(f"poslab: {error} and is written again from the runs", file=sys.stderr)
        return StudyList(folder.name, tuple(recorded_runs(folder)))


def recorded_runs(folder: Path) -> list[str]:
    """Return the names of the runs in a study's folder that have begun."""
    return sorted(path.parent.name for path in folder.glob(f"[!.]*/{MANIFEST}"))


def studies(runs: Path, recorded: bool = False) -> list[str]:
    """Return the names of the studies in `runs`, the last requested first.

    With `recorded`, return those with at least one record, in any folder, the newest record first.
    """
    newest: dict[str, float] = {}
    for path in runs.glob(f"*/[!.]*/{MANIFEST}" if recorded else f"*/{STUDY_LIST}"):
        study = path.relative_to(runs).parts[0]
        if recorded or NAME.fullmatch(study):
            with suppress(OSError):  # it was just removed
                newest[study] = max(newest.get(study, 0.0), path.stat().st_mtime)
    return sorted(newest, key=lambda study: (-newest[study], study))
