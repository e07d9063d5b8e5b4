"""A planned run, and its state according to its record."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from poslab.config.request import Config, Request
from poslab.data.corpus import Corpus
from poslab.loggers.send.card import Card, of_run
from poslab.record.facts import Manifest, recipe
from poslab.record.manifest import OtherFormatError, damaged_files, read_manifest
from poslab.record.schema import ENDED, FINAL, TOKENIZER
from poslab.record.seal import DamagedError
from poslab.study.run.budget import Size
from poslab.study.run.identity import Code


@dataclass(frozen=True)
class RunStatus:
    """The state of a run, according to its record."""

    status: str | None  # None without a record; "older" or "newer" if this version cannot read its format
    reason: str | None = None
    damage: tuple[str, ...] = ()  # a line for each file that is not as it was written
    outdated: bool = False  # whether other code than the present one evaluated its model
    manifest: Manifest | None = None

    @property
    def settled(self) -> bool:
        """Whether the run is done or has diverged, and would give the same result again."""
        return self.status in ENDED and not self.damage and not self.outdated


@dataclass(frozen=True)
class Job:
    """A run that can start: its settings are checked, and its data is prepared."""

    request: Request
    config: Config  # that of the request, with `auto` replaced
    size: Size
    corpus: Corpus
    code: Code
    identity: str
    directory: Path
    facts: Mapping[str, Any]  # the facts in its record from the start

    @property
    def card(self) -> Card:
        """The run's name, tags and settings, as W&B shows them."""
        return of_run(self.request, self.identity, self.code.shared, self.corpus.fingerprint)

    @property
    def begun(self) -> bool:
        """Whether the run has a directory; if not, there is nothing to read or to resume."""
        return self.directory.exists()

    @property
    def run_status(self) -> RunStatus:
        """The present state of the run, which is read from its files each time."""
        if not self.begun:
            return RunStatus(None)
        try:
            manifest = read_manifest(self.directory)
        except OtherFormatError as error:
            return RunStatus(error.age, error.reason, () if error.age == "newer" else (error.found,))
        except DamagedError as error:
            return RunStatus(None, damage=(str(error),))
        if manifest is None:
            return RunStatus(None)
        damaged = damaged_files(self.directory, manifest.files)
        outdated = manifest.status == "done" and recipe(manifest.code_evaluation) != self.code.evaluation
        if manifest.status in ENDED and not (self.directory / FINAL).exists():  # removed to save space
            damaged = damaged if outdated else [name for name in damaged if name not in (FINAL, TOKENIZER)]
            outdated = False  # without weights it cannot be evaluated again
        paths = map(self.directory.joinpath, damaged)
        damage = tuple(f"{path} is {'damaged' if path.exists() else 'missing'}" for path in paths)
        return RunStatus(manifest.status, manifest.reason, damage, outdated, manifest)

    @property
    def settled(self) -> bool:
        return self.run_status.settled
