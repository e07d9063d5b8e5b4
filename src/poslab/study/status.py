"""The state of a study's runs, from its files only."""

import math
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from rich.console import Console

from poslab.config.installation import typed
from poslab.config.schema import ConfigError
from poslab.record.active_runs import active_runs
from poslab.record.facts import Manifest
from poslab.record.locks import is_taken, run_lock
from poslab.record.manifest import read_manifest
from poslab.record.reader import PART, TUNING
from poslab.record.schema import MANIFEST, STUDY_LIST
from poslab.record.seal import DamagedError, UnreadableError
from poslab.record.study_list import read_study_list, studies
from poslab.study.display.study_view import READ_SECONDS, Entry, StudyDisplay
from poslab.study.launch.launchers.slurm import queued

SLURM_SECONDS = 10.0  # between two requests to Slurm's controller
RESUMES = "the same command resumes it"
ENDED = ("done", "failed", "stopped", "abandoned")


def sound_manifest(directory: Path) -> Manifest | None:
    """Return the manifest of a run directory, None where there is none that can be read."""
    try:
        return read_manifest(directory)
    except (UnreadableError, OSError):
        return None


def succeeded(manifest: Manifest) -> bool:
    """Return whether a run is done; that the rate of a trial is too high is a result, too."""
    trial = (manifest.config or {}).get(PART) == TUNING
    return manifest.status == "done" or (trial and manifest.status == "diverged")


def study_folder(study: str, runs: Path) -> Path:
    """Return the folder of a study that has a list of runs. Raises ConfigError where there is none."""
    listed = studies(runs)
    if study in listed:
        return runs / study
    if study in studies(runs, recorded=True):
        advice = f"`{typed('report')} study={study}` shows those that are finished"
        why = "it is of evaluate hf=, or its command has not begun a run"
        raise ConfigError(f"study {study!r} has no list of runs ({why}): {advice}")
    known = f"; there are: {', '.join(listed)}" if listed else ", nor any other"
    raise ConfigError(f"no study {study[:100]!r} in {runs}{known}")


def show_status(folder: Path, follow: bool, hint: str = "") -> int:
    """Print the state of a study's runs, with `follow` until all have ended or until Ctrl-C.

    `hint` follows the study's name. Return the exit status, 1 where a run failed. Raises ConfigError where
    the list is damaged or absent.
    """
    files = StudyFiles(folder)
    console = Console(highlight=False)
    files.refresh()
    active = any(entry.state not in ENDED for entry in files.entries)
    ending = "; Ctrl-C ends this view, not the study" if follow and active else ""
    console.print(f"{folder.name}{hint}{ending}", markup=False, soft_wrap=True)
    display = StudyDisplay(console, files.entries, durations=_durations(files.entries))
    if follow:
        with suppress(KeyboardInterrupt), display:  # it ends the view, not the study
            while not all(entry.state in ENDED for entry in files.entries):
                time.sleep(READ_SECONDS)
                files.refresh()
                display.update()
    else:
        for line in display.lines():
            display.print_line(line)
    if any(entry.state == "abandoned" for entry in files.entries):
        console.print(
            "abandoned: no running command has these runs; the same command starts them, and "
            f"`{typed('clean')} study={folder.name}` removes them",
            markup=False,
            soft_wrap=True,
        )
    return int(any(entry.state == "failed" for entry in files.entries))


class StudyFiles:
    """The runs of a study, read from its files."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.entries: list[Entry] = []
        self.queued: set[str] = set()  # the runs of Slurm's queue, which need no command
        self.asked_at = -math.inf

    def refresh(self) -> None:
        """Bring `entries` up to date. Raises ConfigError where the study's list is damaged."""
        known = {entry.directory.name: entry for entry in self.entries}
        self.entries[:] = [
            known.get(name) or Entry(name, self.directory / name, "waiting") for name in self._names()
        ]
        if time.monotonic() - self.asked_at > SLURM_SECONDS:
            self.queued, self.asked_at = queued(self.directory), time.monotonic()
        coming = active_runs(self.directory)
        for entry in self.entries:
            if entry.state != "done":
                self._read(entry, coming.get(entry.directory.name))
                if entry.directory.name in self.queued and entry.state in ("stopped", "abandoned"):
                    entry.state, entry.note = "waiting", ""

    def _names(self) -> tuple[str, ...]:
        try:
            listed = read_study_list(self.directory)
        except DamagedError as error:
            raise ConfigError(f"{error}; the study's command writes it again") from None
        if listed is None:
            path = self.directory / STUDY_LIST
            raise ConfigError(f"{path} is gone; the study's command writes it again")
        return listed.runs

    def _read(self, entry: Entry, coming: float | None) -> None:
        """Set the entry's state; `coming` is when a running command listed the run."""
        try:
            manifest = read_manifest(entry.directory)
            written = (entry.directory / MANIFEST).stat().st_mtime if manifest is not None else 0.0
        except (ConfigError, OSError) as error:
            entry.state, entry.note = "failed", str(error)
            return
        if manifest is None or (written < (coming or 0.0) and not _is_locked(entry.directory)):
            entry.state, entry.note = ("abandoned" if coming is None else "waiting"), ""
            return
        parts = (manifest.pos, manifest.attention, f"seed {manifest.seed}")
        entry.title, entry.note = " / ".join(map(str, parts)), ""
        if succeeded(manifest):
            entry.state = "done"
        elif manifest.status == "running" and _is_locked(entry.directory):
            entry.state = "running"
        elif manifest.status in ("running", "interrupted"):
            entry.state, entry.note = "stopped", RESUMES
        else:
            entry.state, entry.note = "failed", manifest.reason or "without a reason"


def _is_locked(run: Path) -> bool:
    """Return whether a process holds the run's lock; True where that is unknown, as the record says."""
    try:
        return is_taken(run_lock(run))
    except OSError:  # a file of another user, or a file system without locks
        return True


def _durations(entries: Iterable[Entry]) -> list[float]:
    """Return the seconds that finished runs took by their records, without the time that one was stopped."""
    known = (sound_manifest(entry.directory) for entry in entries if entry.state == "done")
    return [
        sum(part or 0.0 for part in (facts.seconds, facts.seconds_validation, facts.seconds_evaluation))
        for facts in filter(None, known)
    ]
