"""A report on chosen runs, of one study or of several, in the order given."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from poslab.record.reader import Records, ReportError, Run, load_run, no_collecting, study_list_of
from poslab.record.schema import MANIFEST
from poslab.report.analysis.results import Asked, figures
from poslab.report.write import Report, write


def write_chosen(directories: Sequence[Path], reports: Path, reference: str | None = None) -> Report:
    """Make the report of these run directories alone; it is named by them. Raises ReportError.

    Without a `reference` the first one's arm is what the others are compared with.
    """
    records = load_chosen(directories)
    names = [f"{directory.parent.name}/{directory.name}" for directory in map(Path.resolve, directories)]
    digest = hashlib.sha256("\n".join(names).encode()).hexdigest()[:6]
    studies = "+".join(one.study for one in records)
    several = f"{studies[:80]}-{len(names)}-runs-{digest}"
    # A report is published: the command names the runs as a study has them, not where they lay.
    option = f"checkpoint={','.join(f'runs/{name}' for name in names)}"
    asked = Asked(names[0].partition("/")[2] if len(names) == 1 else several, option)
    return write(figures(records, asked, reference), reports)


def load_chosen(directories: Sequence[Path]) -> tuple[Records, ...]:
    """Their records, by study. Raises ReportError where one is no run directory, or given twice."""
    runs: dict[str, dict[str, Run]] = {}
    commands: dict[str, list[str]] = {}
    with no_collecting():
        for directory in map(Path.resolve, directories):
            study, name = directory.parent.name, directory.name
            if not (directory / MANIFEST).exists():
                raise ReportError(f"{name} holds no record of a run")
            if name in runs.setdefault(study, {}):
                raise ReportError(f"{name} of study={study} is named twice")
            runs[study][name] = load_run(directory)
            commands.setdefault(study, []).extend(study_list_of(directory.parent).commands)
    return tuple(
        Records(
            study,
            tuple(
                replace(run, name=f"{study}/{name}" if len(runs) > 1 else name, study=study)
                for name, run in found.items()
            ),
            True,
            None,
            tuple(dict.fromkeys(commands[study])),
        )
        for study, found in runs.items()
    )
