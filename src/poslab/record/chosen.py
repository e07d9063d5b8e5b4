"""Records of individual run directories, from one study or several."""

from collections.abc import Sequence
from pathlib import Path

from poslab.record.reader import Records, ReportError, load_run, study_list_of
from poslab.record.schema import MANIFEST


def load_chosen(directories: Sequence[Path]) -> tuple[Records, ...]:
    """Return the records of run directories, grouped by study, in the given order.

    Raise ReportError if a directory has no record of a run or is given twice.
    """
    studies: dict[str, dict[str, Path]] = {}
    for directory in map(Path.resolve, directories):
        study, name = directory.parent.name, directory.name
        if not (directory / MANIFEST).exists():
            raise ReportError(f"{name} has no record of a run: name a run directory such as runs/STUDY/RUN")
        if name in studies.setdefault(study, {}):
            raise ReportError(f"{name} of study={study} is named twice")
        studies[study][name] = directory
    several = len(studies) > 1
    return tuple(
        Records(
            study,
            tuple(load_run(path, several) for path in chosen.values()),
            True,
            None,
            tuple(
                dict.fromkeys(
                    line for path in chosen.values() for line in study_list_of(path.parent).commands
                )
            ),
        )
        for study, chosen in studies.items()
    )
