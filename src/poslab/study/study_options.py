"""Options of a command for its studies: their folders, and what their reports compare and test."""

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from poslab.config.request import FIGURES, Request
from poslab.config.schema import ConfigError
from poslab.record.facts import Manifest
from poslab.record.measures import multiple
from poslab.record.study_list import UNNAMED, recorded_runs
from poslab.study.run.job import Job
from poslab.study.status import sound_manifest

CHOICES = ("reference", "question", "primary")  # settings of which a study has one value


@dataclass(frozen=True)
class StudyOptions:
    """Options of a command for its studies."""

    command: str  # its line, which the reports show so that the runs can be repeated
    runs: Path  # the folder of all studies' runs
    reports: Path  # and of all reports
    choices: Mapping[str, Mapping[str, str]]  # of each of CHOICES: the value by study, where one is given

    def check_primaries(self, jobs: Sequence[Job]) -> None:
        """Raise ConfigError where no run of a study is evaluated at the length of the figure to be tested."""
        for study, primary in self.choices["primary"].items():
            configs = [manifest.config or {} for manifest in _manifests(self.runs / study)]
            lengths = [(config.get("evaluate") or {}).get("longest") for config in configs]
            lengths += [job.config.evaluate.longest for job in jobs if job.config.study == study]
            longest = max((k for k in lengths if isinstance(k, int)), default=math.inf)
            figures = [figure for figure in FIGURES if multiple(figure) <= longest]
            if primary not in figures:
                raise ConfigError(
                    f"primary={primary}: study={study} is evaluated up to {longest:g} L (evaluate.longest); "
                    f"there are {', '.join(figures)}"
                )


def study_options(requests: Sequence[Request], command: str) -> StudyOptions:
    """Return the options that all requests of a command share. Raises ConfigError where they differ."""
    runs, reports = _folders(requests)
    choices = {setting: _one_per_study(requests, setting) for setting in CHOICES}
    _check_references(choices["reference"], requests, runs)
    return StudyOptions(command, runs, reports, choices)


def _folders(requests: Sequence[Request]) -> tuple[Path, Path]:
    """Return the folders of all studies' runs and of all reports.

    Raises ConfigError where a command has several, or one that cannot be written.
    """
    for name in ("runs", "reports"):
        values = list(dict.fromkeys(str(getattr(request.config, name)) for request in requests))
        if len(values) > 1:
            raise ConfigError(f"{name}={','.join(values)}: a command has one folder for its {name}")
        folder = Path(values[0]).absolute()
        existing = next(path for path in (folder, *folder.parents) if path.exists() or path.is_symlink())
        if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
            why = "cannot be written" if existing.is_dir() else "is no folder"
            raise ConfigError(f"{name}={values[0]}: {existing} {why}; choose another {name}=")
    config = requests[0].config
    return Path(config.runs), Path(config.reports)


def _check_references(references: Mapping[str, str], requests: Sequence[Request], runs: Path) -> None:
    """Raise ConfigError where the arm that a study compares the others with is none of its arms."""
    for study, reference in references.items():
        arms = {(request.pos, request.attention) for request in requests if request.config.study == study}
        arms |= {(str(run.pos), str(run.attention)) for run in _manifests(runs / study)}
        names = dict.fromkeys(
            name for pos, attention in sorted(arms) for name in (pos, f"{pos} / {attention}")
        )
        # In an arm's label its other differences follow.
        if not any(reference == name or reference.startswith(f"{name} ") for name in names):
            raise ConfigError(
                f"reference={reference[:60]} is no arm of study={study}; there are {', '.join(names)}"
            )


def _one_per_study(requests: Sequence[Request], setting: str) -> dict[str, str]:
    """Return the value of `setting` of each study that sets it.

    Raises ConfigError where requests of one study differ in it.
    """
    values: dict[str, str] = {}
    for request in requests:
        study, value = request.config.study, getattr(request.config, setting)
        if value is not None and values.setdefault(study, value) != value:
            raise ConfigError(
                f"{setting}={values[study]},{value}: a study has one {setting}; text with commas takes "
                f"quotes of both kinds, {setting}='\"TEXT\"'"
            )
    return values


def _manifests(study: Path) -> Iterator[Manifest]:
    """Return the readable manifests of recorded runs, which count beside the command's own."""
    names = [] if study.name == UNNAMED else recorded_runs(study)
    return filter(None, (sound_manifest(study / name) for name in names))
