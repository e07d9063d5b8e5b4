"""The options of a command that concern whole studies: folders, and what the reports compare and test."""

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

CHOICES = ("reference", "question", "primary")  # settings that have one value per study


@dataclass(frozen=True)
class StudyOptions:
    """The options of a command that concern its studies as a whole."""

    command: str  # the command line, which reports show so that the runs can be repeated
    runs: Path  # the folder with the runs of all studies
    reports: Path  # the folder with all reports
    choices: Mapping[str, Mapping[str, str]]  # for each of CHOICES: its value by study, if the study has one

    def check_primaries(self, jobs: Sequence[Job]) -> None:
        """Raise ConfigError if no run of a study is evaluated at the length of the study's `primary`."""
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
    """Return the options that all requests of a command share. Raise ConfigError if they differ."""
    runs, reports = _folders(requests)
    choices = {setting: _one_per_study(requests, setting) for setting in CHOICES}
    _check_references(choices["reference"], requests, runs)
    return StudyOptions(command, runs, reports, choices)


def _folders(requests: Sequence[Request]) -> tuple[Path, Path]:
    """Return the folder for the runs of all studies and the folder for all reports.

    Raise ConfigError if the requests name several of either, or if one of them is not writable.
    """
    for name in ("runs", "reports"):
        values = list(dict.fromkeys(str(getattr(request.config, name)) for request in requests))
        if len(values) > 1:
            raise ConfigError(f"{name}={','.join(values)}: a command can have only one folder for its {name}")
        folder = Path(values[0]).absolute()
        existing = next(path for path in (folder, *folder.parents) if path.exists() or path.is_symlink())
        if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
            why = "is not writable" if existing.is_dir() else "is not a folder"
            raise ConfigError(f"{name}={values[0]}: {existing} {why}; choose another {name}=")
    config = requests[0].config
    return Path(config.runs), Path(config.reports)


def _check_references(references: Mapping[str, str], requests: Sequence[Request], runs: Path) -> None:
    """Raise ConfigError if the `reference` of a study is not one of the study's arms."""
    for study, reference in references.items():
        arms = {(request.pos, request.attention) for request in requests if request.config.study == study}
        arms |= {(str(run.pos), str(run.attention)) for run in _manifests(runs / study)}
        names = dict.fromkeys(
            name for pos, attention in sorted(arms) for name in (pos, f"{pos} / {attention}")
        )
        # The label of an arm may continue after its name with the other settings in which it differs.
        if not any(reference == name or reference.startswith(f"{name} ") for name in names):
            raise ConfigError(
                f"reference={reference[:60]} is not an arm of study={study}; there are {', '.join(names)}"
            )


def _one_per_study(requests: Sequence[Request], setting: str) -> dict[str, str]:
    """Return the value of `setting` for each study that sets it.

    Raise ConfigError if requests of the same study set different values.
    """
    values: dict[str, str] = {}
    for request in requests:
        study, value = request.config.study, getattr(request.config, setting)
        if value is not None and values.setdefault(study, value) != value:
            raise ConfigError(
                f"{setting}={values[study]},{value}: a study can have only one {setting}; text with commas "
                f"needs both kinds of quotes, {setting}='\"TEXT\"'"
            )
    return values


def _manifests(study: Path) -> Iterator[Manifest]:
    """Return the readable manifests of the study's recorded runs; an unnamed study has none."""
    names = [] if study.name == UNNAMED else recorded_runs(study)
    return filter(None, (sound_manifest(study / name) for name in names))
