"""Read and check the records of a study; unreadable ones are listed with their reason, never dropped."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from poslab.config.errors import UserError
from poslab.config.installation import typed
from poslab.config.schema import CAUSAL
from poslab.config.text import published
from poslab.record import losses
from poslab.record.facts import Manifest
from poslab.record.files import Tables, read_tables, table_rows
from poslab.record.losses import TRAINED, LossSum, RescaledMeasurement, Segments, Validation
from poslab.record.manifest import OtherFormatError, check_directory, parse_manifest
from poslab.record.schema import ENDED, MANIFEST, METRICS, RESCALED, RESCALED_POSITION, STUDY_LIST
from poslab.record.seal import UnreadableError
from poslab.record.study_list import StudyList, read_study_list, recorded_runs, studies

PART = "part"  # the configuration's key for the purpose of a run
TUNING = "tuning"  # the purpose is to choose a learning rate; any other value: a comparison


class ReportError(UserError, ValueError):
    """Error raised if a report cannot be written; the message is one line with the remedy."""


class Rates(NamedTuple):
    """The learning rates that tuning chooses for an arm: fields of `trainer`."""

    learning_rate: float
    scheme_rate: float = 1.0


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


@dataclass(frozen=True)
class Run:
    """One run directory. Only finished runs have measurements."""

    name: str  # its directory, preceded by its study if the report is on several studies
    status: str  # from the manifest, or not started, unreadable, older, newer
    reason: str = ""
    manifest: Manifest = field(default_factory=Manifest)  # empty if it could not be read
    validations: tuple[Validation, ...] = ()
    segments: Segments = field(default_factory=dict)
    positions: Mapping[int, LossSum] = field(default_factory=dict)
    rescaled: Mapping[str, RescaledMeasurement] = field(default_factory=dict)
    tables: Tables = field(default_factory=dict)  # its CSV files, as record/frames.py reads them
    study: str = ""

    @property
    def has_text(self) -> bool:
        """Whether it trained on text; a task has no text and no losses on it."""
        return bool((self.config.get("data") or {}).get("source") != "none")

    @property
    def objective(self) -> str:
        """The kind of its objective, or the name of its task."""
        return str((self.config.get("objective") or CAUSAL).get("kind"))

    @property
    def directory(self) -> str:
        """The name of its directory."""
        return self.name.rpartition("/")[2]

    @property
    def tunes(self) -> bool:
        """Whether its purpose is to choose a learning rate; if so, it has only validation losses."""
        return self.readable and self.config.get(PART) == TUNING

    @property
    def learning_rate(self) -> float | None:
        return _number(self.config["trainer"].get("learning_rate"))

    @property
    def rates(self) -> "Rates | None":
        """The learning rates that tuning chooses; the scheme's rate is 1 in records without it."""
        scheme_rate = _number(self.config["trainer"].get("scheme_rate", 1.0))
        if self.learning_rate is None or scheme_rate is None:
            return None
        return Rates(self.learning_rate, scheme_rate)

    @property
    def readable(self) -> bool:
        """Whether the manifest has the settings of this run, and therefore its arm."""
        return self.manifest.config is not None

    @property
    def config(self) -> Mapping[str, Any]:
        """The settings that decide the result."""
        return self.manifest.config or {}

    @property
    def pos(self) -> str:
        return str(self.manifest.pos)

    @property
    def attention(self) -> str:
        return str(self.manifest.attention)

    @property
    def seed(self) -> int:
        assert self.manifest.seed is not None
        return self.manifest.seed

    @property
    def context_length(self) -> int:
        """The training length L, in tokens."""
        return int(self.config["context_length"])

    @property
    def budget(self) -> int:
        """The requested training tokens: steps x windows per step x L."""
        trainer = self.config["trainer"]
        return int(trainer["max_steps"]) * int(trainer["batch_size"]) * self.context_length

    @property
    def steps(self) -> tuple[int, int]:
        """The optimizer steps done, and those requested; a callback may end training early."""
        requested = int(self.config["trainer"]["max_steps"])
        tokens = self.manifest.tokens
        return (requested if tokens is None else tokens * requested // self.budget), requested

    @property
    def max_length(self) -> int | None:
        """The length in tokens past which the scheme is not defined; None if there is no such length."""
        return self.manifest.max_length

    @property
    def rescalings(self) -> tuple[str, ...]:
        """The other rotations that the run was measured under: those requested, and any others on record."""
        return tuple(dict.fromkeys([*_rescalings(self.config), *self.rescaled]))

    @property
    def data_fingerprint(self) -> str:
        return str(self.manifest.corpus.fingerprint)

    @property
    def data_name(self) -> str | None:
        return self.manifest.corpus.name

    @property
    def vocabulary(self) -> int | None:
        """The number of different tokens; nats per token compare only within one vocabulary."""
        return self.manifest.corpus.vocabulary

    @property
    def versions(self) -> Mapping[str, str]:
        """Versions of Python and of packages that may affect the last digits."""
        return self.manifest.versions or {}


@dataclass(frozen=True)
class Records:
    """All runs of a study, in the order requested, with the reference and tested figure that it names."""

    study: str
    runs: tuple[Run, ...]
    ordered: bool
    reference: str | None
    commands: tuple[str, ...]
    question: str | None = None  # the question that the study should answer
    primary: str | None = None  # the figure that its report tests, such as sliding_8x
    archive: Path | None = None  # the file that they were read from; None: the run directories
    # In the study of commands without study=, runs of earlier commands: listed, but not compared.
    earlier: tuple[Run, ...] = ()


def load(study: str, runs: Path) -> Records:
    """Load the records of `study` under `runs`. Raise ReportError if there is no such study."""
    (requested,) = requested_studies(study, studies(runs, recorded=True))
    return load_study(runs / requested)


def requested_studies(names: str, known: list[str]) -> list[str]:
    """Return the studies in `names`, separated by commas. Raise ReportError for one that is not `known`."""
    requested = names.split(",")
    for study in requested:
        if not study:
            raise ReportError(f"study={_short(names)} lacks a name; {_choices(known)}")
        if requested.count(study) > 1:
            raise ReportError(f"study={_short(names)} names {_short(study)} twice")
        if study not in known:
            raise ReportError(f"study={_short(study)} has no records; {_choices(known)}")
    return requested


def load_study(folder: Path, several: bool = False) -> Records:
    """Load the records in a study's folder; with `several`, run names begin with the study's name."""
    listed = study_list_of(folder)
    latest = listed.latest  # set if only the runs of the last command are compared
    names = dict.fromkeys([*latest, *listed.runs, *recorded_runs(folder)])
    runs = tuple(load_run(folder / name, several) for name in names)
    return Records(
        folder.name,
        tuple(run for run in runs if not latest or run.directory in latest),
        bool(listed.runs),
        listed.reference,
        listed.commands[-1:] if latest else listed.commands,
        listed.question,
        listed.primary,
        earlier=tuple(run for run in runs if latest and run.directory not in latest),
    )


def load_chosen(directories: Sequence[Path]) -> tuple[Records, ...]:
    """Return the records of run directories, grouped by study, in the given order.

    Raise ReportError if a directory has no record of a run or is given twice.
    """
    chosen: dict[str, dict[str, Path]] = {}
    for directory in map(Path.resolve, directories):
        study, name = directory.parent.name, directory.name
        if not (directory / MANIFEST).exists():
            raise ReportError(f"{name} has no record of a run: name a run directory such as runs/STUDY/RUN")
        if name in chosen.setdefault(study, {}):
            raise ReportError(f"{name} of study={study} is named twice")
        chosen[study][name] = directory
    several = len(chosen) > 1
    records = []
    for study, paths in chosen.items():
        commands = (line for path in paths.values() for line in study_list_of(path.parent).commands)
        runs = tuple(load_run(path, several) for path in paths.values())
        records.append(Records(study, runs, True, None, tuple(dict.fromkeys(commands))))
    return tuple(records)


def _choices(known: list[str]) -> str:
    if not known:
        return f"train one first: {typed('train')} -m pos=rope,alibi"
    names = ", ".join(known[:8])
    return f"studies with records: {names}" + (f" and {len(known) - 8} more" if len(known) > 8 else "")


def _short(text: str) -> str:
    return repr(text[:60]) if not re.fullmatch(r"[\w.-]{1,60}", text) else text


def study_list_of(folder: Path) -> StudyList:
    """Read the list of a study, an empty one if there is none. Raise ReportError if it cannot be read."""
    try:
        return read_study_list(folder) or StudyList(folder.name)
    except UnreadableError as error:
        problem = str(error).replace(str(folder / STUDY_LIST), STUDY_LIST)
        if isinstance(error, OtherFormatError):
            raise ReportError(f"study={folder.name}: {problem}") from None
    except OSError as error:
        problem = f"{STUDY_LIST} cannot be read ({error.strerror})"
    raise ReportError(f"study={folder.name}: {problem}; remove it to have the runs listed by name")


def load_run(folder: Path, several: bool = False) -> Run:
    """Load the record of one run directory; an unreadable one has a status and a reason.

    With `several` studies, the run's name begins with the study's.
    """
    study = folder.parent.name
    run = Run(f"{study}/{folder.name}" if several else folder.name, "unreadable", study=study)
    try:
        manifest = parse_manifest((folder / MANIFEST).read_bytes())
        check_directory(manifest, folder)
    except FileNotFoundError:
        return replace(run, status="not started", reason="no record yet")
    except OtherFormatError as error:
        return replace(run, status=error.age, reason=error.reason)
    except UnreadableError as error:
        return replace(run, reason=str(error))
    except OSError:
        return replace(run, reason=f"{MANIFEST} cannot be read")
    config = manifest.config or {}  # the path of a text is not part of an arm
    manifest = manifest.updated(config={**config, "data": published(config.get("data") or {})})
    try:
        return replace(load_evaluation(folder, manifest), name=run.name, study=study)
    except UnreadableError as error:
        return replace(run, reason=str(error), manifest=manifest)


def load_evaluation(folder: Path, manifest: Manifest) -> Run:
    """Load the tables of a run, or of an evaluation of a trained model, by its manifest.

    Raise DamagedError.
    """
    reason = manifest.reason or ""
    run = Run(folder.name, str(manifest.status), reason, manifest, study=str(manifest.study))
    if run.status not in ENDED:
        return run
    tables = read_tables(folder, manifest.tables)
    if manifest.evaluation is None:
        run = replace(run, validations=losses.validations(tables))
    if run.tunes or run.status == "diverged":  # a diverged run may have reached a target first
        return run
    if not run.has_text:
        return replace(run, tables=tables)
    rescaled = _rescalings(run.config) or {RESCALED.file, RESCALED_POSITION.file} & tables.keys()
    return replace(
        run,
        segments=losses.segments(tables),
        positions=losses.positions(tables),
        rescaled=losses.rescaled(tables) if rescaled else {},
        tables=tables,
    )


def metrics_rows(folder: Path, manifest: Manifest) -> list[dict[str, str]]:
    """Return the rows of metrics.csv as text. Raise DamagedError."""
    digests = {name: digest for name, digest in manifest.tables.items() if name == METRICS.file}
    return table_rows(read_tables(folder, digests), METRICS)


def _rescalings(config: Mapping[str, Any]) -> list[str]:
    names = (config.get("evaluate") or {}).get("rescale") or []
    return [name for name in names if name != TRAINED]
