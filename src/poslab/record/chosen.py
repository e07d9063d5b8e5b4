"""Records of single run directories, of one study or of several."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from poslab.record.reader import Records, ReportError, Run, load_run, study_list_of
from poslab.record.schema import MANIFEST


def load_chosen(directories: Sequence[Path]) -> tuple[Records, ...]:
    """Return the records of run directories, by study, in the order given.

    Raise ReportError for a directory that is no run's, or is given twice.
    """
    runs: dict[str, dict[str, Run]] = {}
    commands: dict[str, list[str]] = {}
    for directory in map(Path.resolve, directories):
        study, name = directory.parent.name, directory.name
        if not (directory / MANIFEST).exists():
            raise ReportError(f"{name} holds no record of a run: name a run directory such as runs/STUDY/RUN")
        if name in runs.setdefault(study, {}):
            raise ReportError(f"{name} of study={study} is named twice")
        runs[study][name] = load_run(directory)
        commands.setdefault(study, []).extend(study_list_of(directory.parent).commands)
    return tuple(
        Records(
            study,
            tuple(
                replace(run, name=f"{study}/{name}" if len(runs) > 1 else name, study=study)
                for name, run in by_name.items()
            ),
            True,
            None,
            tuple(dict.fromkeys(commands[study])),
        )
        for study, by_name in runs.items()
    )
