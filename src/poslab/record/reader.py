"""Records of a study, read and checked: what cannot be read is listed with its reason, never dropped."""

import csv
import gc
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from poslab.config.installation import typed
from poslab.config.text import published
from poslab.record import losses
from poslab.record.facts import Manifest
from poslab.record.files import Tables, read_tables, table_records
from poslab.record.losses import TRAINED, RescaledMeasurement, Segments, Stretch, Validation
from poslab.record.manifest import OtherFormatError, check_directory, parse_manifest
from poslab.record.schema import MANIFEST, METRICS, RESCALED, RESCALED_POSITION, STUDY_LIST
from poslab.record.seal import UnreadableError
from poslab.record.study_list import NewerListError, StudyList, read_study_list, recorded_runs, studies

PART = "part"  # what a run of a study is for, in its configuration
TUNING = "tuning"  # it helps to choose a learning rate; any other is one of the comparison


class ReportError(ValueError):
    """A report that cannot be made; the message is one line that says what to do."""


class Rates(NamedTuple):
    """What tuning chooses for an arm: fields of `trainer`."""

    learning_rate: float
    scheme_rate: float = 1.0


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


@dataclass(frozen=True)
class Run:
    """One run directory. The measurements are there for finished runs alone."""

    name: str  # its directory, in its study's folder where the report is on several
    status: str  # as the manifest has it, or not started, unreadable, older, newer
    reason: str = ""
    manifest: Manifest = field(default_factory=Manifest)  # empty where it could not be read
    validations: tuple[Validation, ...] = ()
    segments: Segments = field(default_factory=dict)
    positions: Mapping[int, Stretch] = field(default_factory=dict)
    rescaled: Mapping[str, RescaledMeasurement] = field(default_factory=dict)
    tables: Tables = field(default_factory=dict)  # its CSV files, as record/frames.py reads them
    study: str = ""

    @property
    def directory(self) -> str:
        """The name of its directory."""
        return self.name.rpartition("/")[2]

    @property
    def tunes(self) -> bool:
        """Whether it was made to choose a learning rate: it has validation losses and no other."""
        return self.readable and self.config.get(PART) == TUNING

    @property
    def learning_rate(self) -> float | None:
        return _number(self.config["trainer"].get("learning_rate"))

    @property
    def rates(self) -> "Rates | None":
        """What tuning chooses; a record from before there was a scheme's rate has 1."""
        scheme_rate = _number(self.config["trainer"].get("scheme_rate", 1.0))
        if self.learning_rate is None or scheme_rate is None:
            return None
        return Rates(self.learning_rate, scheme_rate)

    @property
    def readable(self) -> bool:
        """Whether the manifest says which arm this run belongs to."""
        return self.manifest.config is not None

    @property
    def config(self) -> Mapping[str, Any]:
        """What decides its result."""
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
        """Training tokens asked for: steps x windows a step x L."""
        trainer = self.config["trainer"]
        return int(trainer["max_steps"]) * int(trainer["batch_size"]) * self.context_length

    @property
    def steps(self) -> tuple[int, int]:
        """Optimizer steps made, and asked for; a callback may end training early."""
        asked = int(self.config["trainer"]["max_steps"])
        tokens = self.manifest.tokens
        return (asked if tokens is None else tokens * asked // self.budget), asked

    @property
    def max_length(self) -> int | None:
        """The length in tokens past which the scheme has no value, None where there is no such length."""
        return self.manifest.max_length

    @property
    def rescalings(self) -> tuple[str, ...]:
        """The rotations it was measured under besides its own: those asked for, and any others on record."""
        return tuple(dict.fromkeys([*_rescalings(self.config), *self.rescaled]))

    @property
    def data_fingerprint(self) -> str:
        return str(self.manifest.corpus.fingerprint)

    @property
    def data_name(self) -> str | None:
        return self.manifest.corpus.name

    @property
    def vocabulary(self) -> int | None:
        """How many tokens there are to tell apart: nats a token compare within one vocabulary only."""
        return self.manifest.corpus.vocabulary

    @property
    def versions(self) -> Mapping[str, str]:
        """Of Python and of packages that may move the last digits."""
        return self.manifest.versions or {}


@dataclass(frozen=True)
class Records:
    """All runs of a study, in the order asked for; the reference and tested figure that it names, if any."""

    study: str
    runs: tuple[Run, ...]
    ordered: bool
    reference: str | None
    commands: tuple[str, ...]
    question: str | None = None  # what the study is to answer
    primary: str | None = None  # the figure that its report tests, such as sliding_8x
    kept: Path | None = None  # the file that they were read from, None: the run directories
    # Of commands before the last one, in the study of commands without a name: listed, but not compared.
    earlier: tuple[Run, ...] = ()
    earlier_commands: tuple[str, ...] = ()

    def whole(self) -> "Records":
        """The same records with the runs of earlier commands among those that are compared."""
        return replace(
            self,
            runs=(*self.earlier, *self.runs),
            commands=(*self.earlier_commands, *self.commands),
            earlier=(),
            earlier_commands=(),
        )


def load(study: str, runs: Path) -> Records:
    """The records of `study` under `runs`. Raises ReportError where there is no such study."""
    (records,) = load_studies(study, runs)
    return records


def load_studies(names: str, runs: Path) -> tuple[Records, ...]:
    """The records of a study, or of several with commas between their names. Raises ReportError."""
    requested = requested_studies(names, studies(runs, recorded=True))
    with no_collecting():
        return tuple(load_study(runs / study, len(requested) > 1) for study in requested)


def requested_studies(names: str, known: list[str]) -> list[str]:
    """The studies between the commas of `names`. Raises ReportError where one is not among the `known`."""
    requested = names.split(",")
    for study in requested:
        if not study:
            raise ReportError(f"study={_short(names)} lacks a name; {_choices(known)}")
        if requested.count(study) > 1:
            raise ReportError(f"study={_short(names)} names {_short(study)} twice")
        if study not in known:
            raise ReportError(f"study={_short(study)} has no records; {_choices(known)}")
    return requested


@contextmanager
def no_collecting() -> Iterator[None]:
    """Records are millions of plain values without cycles: to look through them takes longer than to read."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def load_study(folder: Path, several: bool = False) -> Records:
    """The records in a study's folder. Of several studies a run's name says which it is of."""
    listed = study_list_of(folder)
    names = dict.fromkeys([*listed.latest, *listed.runs, *recorded_runs(folder)])
    within = f"{folder.name}/" if several else ""
    runs = tuple(
        replace(load_run(folder / name), name=f"{within}{name}", study=folder.name) for name in names
    )
    records = Records(
        folder.name,
        runs,
        bool(listed.runs),
        listed.reference,
        listed.commands,
        listed.question,
        listed.primary,
    )
    if not listed.latest:
        return records
    return replace(
        records,
        runs=tuple(run for run in runs if run.directory in listed.latest),
        commands=listed.commands[-1:],
        earlier=tuple(run for run in runs if run.directory not in listed.latest),
        earlier_commands=listed.commands[:-1],
    )


def _choices(known: list[str]) -> str:
    if not known:
        return f"train one first: {typed('train')} -m pos=rope,alibi"
    shown = ", ".join(known[:8])
    return f"studies with records: {shown}" + (f" and {len(known) - 8} more" if len(known) > 8 else "")


def _short(text: str) -> str:
    return repr(text[:60]) if not re.fullmatch(r"[\w.-]{1,60}", text) else text


def study_list_of(folder: Path) -> StudyList:
    """What a study was asked for, nothing where it has no list. Raises ReportError where that is not read."""
    try:
        return read_study_list(folder) or StudyList(folder.name)
    except UnreadableError as error:
        problem = str(error).replace(str(folder / STUDY_LIST), STUDY_LIST)
        if isinstance(error, NewerListError):
            raise ReportError(f"study={folder.name}: {problem}") from None
    except OSError as error:
        problem = f"{STUDY_LIST} cannot be read ({error.strerror})"
    raise ReportError(f"study={folder.name}: {problem}; remove it, the runs are then listed by name")


def load_run(folder: Path, anywhere: bool = False) -> Run:
    """The record of one run directory; what cannot be read has a status and a reason that says why.

    A record is not read where it is of another directory's run, unless it may lie `anywhere`.
    """
    name = folder.name
    try:
        manifest = parse_manifest((folder / MANIFEST).read_bytes())
        if not anywhere:
            check_directory(manifest, folder)
    except FileNotFoundError:
        return Run(name, "not started", "no record yet")
    except OtherFormatError as error:
        return Run(name, error.status, error.reason)
    except UnreadableError as error:
        return Run(name, "unreadable", str(error))
    except OSError:
        return Run(name, "unreadable", f"{MANIFEST} cannot be read")
    if (absent := _absent(manifest)) is not None:
        return Run(name, "unreadable", f"{MANIFEST} has no valid {absent}")
    config = manifest.config or {}  # where a text lay is no part of what an arm is
    manifest = manifest.updated(config={**config, "data": published(config.get("data") or {})})
    run = Run(name, str(manifest.status), manifest.reason or "", manifest)
    if run.status == "diverged":  # it may have reached a target before
        return _with_curve(run, folder)
    if run.status != "done":
        return run
    try:
        return _measured(run, read_tables(folder, manifest.tables))
    except UnreadableError as error:
        return replace(run, status="unreadable", reason=str(error))
    except (ArithmeticError, ValueError, csv.Error):
        return replace(run, status="unreadable", reason="its CSV files cannot be read")


def _measured(run: Run, tables: Tables) -> Run:
    """The run with what a finished one has measured. Raises DamagedError, ValueError and csv.Error."""
    run = replace(run, validations=losses.validations(tables))
    return run if run.tunes else _with_evaluation(run, tables)


def load_evaluation(folder: Path, manifest: Manifest) -> Run:
    """A finished evaluation of a trained model as if it were a run, which has no curve.

    Raises DamagedError, and ValueError and csv.Error where its tables make no sense.
    """
    run = Run(folder.name, "done", "", manifest, study=str(manifest.study))
    return _with_evaluation(run, read_tables(folder, manifest.tables))


def _with_evaluation(run: Run, tables: Tables) -> Run:
    """The run with what its trained model was measured for. Raises DamagedError, ValueError and csv.Error."""
    rescaled = _rescalings(run.config) or {RESCALED.file, RESCALED_POSITION.file} & tables.keys()
    return replace(
        run,
        segments=losses.segments(tables),
        positions=losses.positions(tables),
        rescaled=losses.rescaled(tables) if rescaled else {},
        tables=tables,
    )


def _with_curve(run: Run, folder: Path) -> Run:
    """A run that diverged with its validations; where they cannot be read, its reason says so."""
    try:
        return replace(run, validations=losses.validations(_metrics(folder, run.manifest)))
    except UnreadableError as error:
        problem = str(error)
    except (ArithmeticError, ValueError, csv.Error):
        problem = f"{METRICS.file} cannot be read"
    return replace(run, reason=f"{run.reason}; {problem}, so its curve is left out")


def metrics_rows(folder: Path, manifest: Manifest) -> list[dict[str, str]]:
    """The rows of metrics.csv as they are written. Raises DamagedError."""
    return table_records(_metrics(folder, manifest), METRICS)


def _metrics(folder: Path, manifest: Manifest) -> Tables:
    digests = {name: digest for name, digest in manifest.tables.items() if name == METRICS.file}
    return read_tables(folder, digests)


def _rescalings(config: Mapping[str, Any]) -> list[str]:
    evaluate = config.get("evaluate")
    names = evaluate.get("rescale") if isinstance(evaluate, dict) else None
    listed = names if isinstance(names, list) else []
    return [name for name in listed if isinstance(name, str) and name != TRAINED]


def _absent(manifest: Manifest) -> str | None:
    """The first field without which a run belongs to no arm, or None."""
    config = manifest.config or {}
    trainer = config.get("trainer")
    checks = {
        "pos": manifest.pos is not None,
        "attention": manifest.attention is not None,
        "seed": manifest.seed is not None,
        "config.context_length": _positive(config.get("context_length")),
        "max_length": manifest.max_length is None or manifest.max_length > 0,
        "config.model": isinstance(config.get("model") or {}, dict),
        "config.trainer": isinstance(trainer, dict)
        and _positive(trainer.get("max_steps"))
        and _positive(trainer.get("batch_size")),
    }
    return next((name for name, valid in checks.items() if not valid), None)


def _positive(value: object) -> bool:
    return isinstance(value, int) and value > 0
