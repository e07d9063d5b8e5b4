"""The state of a study's runs, read only from its files."""

import math
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from shlex import quote

from rich.console import Console

from poslab.config.installation import typed
from poslab.config.schema import ConfigError
from poslab.record.active_runs import active_runs
from poslab.record.facts import Manifest
from poslab.record.locks import is_taken, run_lock
from poslab.record.manifest import read_manifest
from poslab.record.reader import PART, TUNING
from poslab.record.schema import MANIFEST
from poslab.record.seal import UnreadableError
from poslab.record.study_list import StudyList, read_study_list, studies
from poslab.study.display.study_view import READ_SECONDS, Entry, StudyDisplay
from poslab.study.launch.launchers.slurm import queued

SLURM_SECONDS = 10.0  # between two requests to Slurm's controller
RESUMES = "the same command resumes it"
ENDED = ("done", "failed", "stopped", "abandoned")


def sound_manifest(directory: Path) -> Manifest | None:
    """Return the manifest of a run directory, None if there is none or it cannot be read."""
    try:
        return read_manifest(directory)
    except (UnreadableError, OSError):
        return None


def succeeded(manifest: Manifest) -> bool:
    """Return whether a run is done. A trial that diverged is done too: its learning rate is too high."""
    trial = (manifest.config or {}).get(PART) == TUNING
    return manifest.status == "done" or (trial and manifest.status == "diverged")


def study_folder(study: str, runs: Path) -> Path:
    """Return the folder of a study that a command trained. Raise ConfigError if there is no such study."""
    listed = studies(runs)
    if study in listed:
        return runs / study
    known = f"; there are: {', '.join(listed)}" if listed else "; there are none"
    raise ConfigError(f"no study {study[:100]!r} was trained in {runs}{known}")


def show_status(folder: Path, follow: bool) -> int:
    """Print the state of a study's runs; with `follow`, until all have ended or Ctrl-C is pressed.

    Return the exit status, which is 1 if a run failed. Raise UnreadableError if the study's list is damaged.
    """
    files = StudyFiles(folder)
    console = Console(highlight=False)
    files.refresh()
    ending = "; Ctrl-C ends this view, not the study" if follow else ""
    console.print(f"{folder.name}{ending}", markup=False, soft_wrap=True)
    display = StudyDisplay(console, files.entries, durations=_durations(files.entries))
    if follow:
        with suppress(KeyboardInterrupt), display:  # Ctrl-C ends the view, not the study
            while not all(entry.state in ENDED for entry in files.entries):
                time.sleep(READ_SECONDS)
                files.refresh()
                display.update()
    else:
        for line in display.lines():
            display.print_line(line)
    if any(entry.state == "abandoned" for entry in files.entries):
        runs = "" if folder.parent == Path("runs") else f" runs={quote(str(folder.parent))}"
        console.print(
            "abandoned: no running command will start these runs; the same command starts them, and "
            f"`{typed('clean')} study={folder.name}{runs}` removes them and those that failed or were "
            "stopped",
            markup=False,
            soft_wrap=True,
        )
    return int(any(entry.state == "failed" for entry in files.entries))


class StudyFiles:
    """The runs of a study and their states, read from its files."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.entries: list[Entry] = []
        self.queued: set[str] = set()  # the runs in Slurm's queue, which need no command
        self.asked_at = -math.inf  # when Slurm was asked last

    def refresh(self) -> None:
        """Bring `entries` up to date. Raise UnreadableError if the study's list is damaged."""
        known = {entry.directory.name: entry for entry in self.entries}
        listed = read_study_list(self.directory) or StudyList()
        self.entries[:] = [
            known.get(name) or Entry(name, self.directory / name, "waiting") for name in listed.runs
        ]
        if time.monotonic() - self.asked_at > SLURM_SECONDS:
            self.queued, self.asked_at = queued(self.directory), time.monotonic()
        active = active_runs(self.directory)
        for entry in self.entries:
            if entry.state != "done":
                self._read(entry, active.get(entry.directory.name))
                if entry.directory.name in self.queued and entry.state in ("stopped", "abandoned"):
                    entry.state, entry.note = "waiting", ""

    def _read(self, entry: Entry, listed_at: float | None) -> None:
        """Set the entry's state; `listed_at` is when a running command listed the run, None if none did."""
        try:
            manifest = read_manifest(entry.directory)
            written = (entry.directory / MANIFEST).stat().st_mtime if manifest is not None else 0.0
        except (ConfigError, OSError) as error:
            entry.state, entry.note = "failed", str(error)
            return
        if manifest is None or (written < (listed_at or 0.0) and not is_taken(run_lock(entry.directory))):
            entry.state, entry.note = ("abandoned" if listed_at is None else "waiting"), ""
            return
        parts = (manifest.pos, manifest.attention, f"seed {manifest.seed}")
        entry.title, entry.note = " / ".join(map(str, parts)), ""
        if succeeded(manifest):
            entry.state = "done"
        elif manifest.status == "running" and is_taken(run_lock(entry.directory)):
            entry.state = "running"
        elif manifest.status in ("running", "interrupted"):
            entry.state, entry.note = "stopped", RESUMES
        else:
            entry.state, entry.note = "failed", manifest.reason or "no reason is recorded"


def _durations(entries: Iterable[Entry]) -> list[float]:
    """Return the seconds that finished runs took according to their records, not counting interruptions."""
    manifests = (sound_manifest(entry.directory) for entry in entries if entry.state == "done")
    return [
        sum(part or 0.0 for part in (facts.seconds, facts.seconds_validation, facts.seconds_evaluation))
        for facts in filter(None, manifests)
    ]
