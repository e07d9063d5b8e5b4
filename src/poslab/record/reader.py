"""Records of a study, read and checked: what cannot be read is listed with its reason, never dropped."""

import csv
import gc
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from poslab.record import losses as sums
from poslab.record import scheme as sums_scheme
from poslab.record.files import read_sealed
from poslab.record.losses import TRAINED, ReportError, RescaledMeasurement, Segments, Stretch, Validation
from poslab.record.manifest import damaged_files, read_manifest
from poslab.record.scheme import Probe, SchemeRecord

PART = "part"  # what a run of a study is for, in its configuration
TUNING = "tuning"  # it helps to choose a learning rate; any other is one of the comparison


@dataclass(frozen=True)
class Run:
    """One run directory. The measurements are there for finished runs alone."""

    name: str  # its directory, in its study's folder where the report is on several
    status: str
    reason: str = ""
    manifest: Mapping[str, Any] = field(default_factory=dict)
    validations: tuple[Validation, ...] = ()
    segments: Segments = field(default_factory=dict)
    positions: Mapping[int, Stretch] = field(default_factory=dict)
    rescaled: Mapping[str, RescaledMeasurement] = field(default_factory=dict)
    probe: Probe = field(default_factory=dict)  # empty where it was not asked for
    scheme: SchemeRecord = field(default_factory=SchemeRecord)
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
        rate = self.config["trainer"].get("learning_rate")
        return float(rate) if isinstance(rate, int | float) and not isinstance(rate, bool) else None

    @property
    def readable(self) -> bool:
        """Whether the manifest says which arm this run belongs to."""
        return bool(self.manifest)

    @property
    def config(self) -> Mapping[str, Any]:
        config: Mapping[str, Any] = self.manifest["config"]
        return config

    @property
    def pos(self) -> str:
        return str(self.manifest["pos"])

    @property
    def attention(self) -> str:
        return str(self.manifest["attention"])

    @property
    def seed(self) -> int:
        return int(self.manifest["seed"])

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
    def max_length(self) -> int | None:
        """The length in tokens past which the scheme has no value, None where there is no such length."""
        length = self.manifest.get("max_length")
        return None if length is None else int(length)

    @property
    def rescalings(self) -> tuple[str, ...]:
        """The rotations it was measured under besides its own: those asked for, and any others on record."""
        return tuple(dict.fromkeys([*_rescalings(self.config), *self.rescaled]))

    @property
    def data_fingerprint(self) -> str:
        return str((self.manifest.get("data") or {}).get("fingerprint"))

    @property
    def vocabulary(self) -> object:
        """How many tokens there are to tell apart: nats a token compare within one vocabulary only."""
        return (self.manifest.get("data") or {}).get("vocabulary")


@dataclass(frozen=True)
class Records:
    """All runs of a study, in the order asked for, and the reference that the study names, if any."""

    study: str
    runs: tuple[Run, ...]
    ordered: bool
    reference: str | None
    commands: tuple[str, ...]
    question: str | None = None  # what the study is to answer


def studies(runs: Path) -> list[str]:
    """The studies with at least one record, the newest record first."""
    newest: dict[str, float] = {}
    for manifest in runs.glob("*/[!.]*/manifest.json"):
        study = manifest.parent.parent.name
        newest[study] = max(newest.get(study, 0.0), manifest.stat().st_mtime)
    return sorted(newest, key=lambda study: (-newest[study], study))


def load(study: str, runs: Path) -> Records:
    """The records of `study` under `runs`. Raises ReportError where there is no such study."""
    (records,) = load_studies(study, runs)
    return records


def load_studies(names: str, runs: Path) -> tuple[Records, ...]:
    """The records of a study, or of several with commas between their names. Raises ReportError."""
    wanted = names.split(",")
    known = studies(runs)
    for study in wanted:
        if not study:
            raise ReportError(f"study={_short(names)} lacks a name; {_choices(known)}")
        if wanted.count(study) > 1:
            raise ReportError(f"study={_short(names)} names {_short(study)} twice")
        if study not in known:
            raise ReportError(f"study={_short(study)} has no records; {_choices(known)}")
    with no_collecting():
        return tuple(_load_study(runs / study, len(wanted) > 1) for study in wanted)


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


def _load_study(folder: Path, several: bool) -> Records:
    asked, reference, commands, question = plan_of(folder)
    present = sorted(path.parent.name for path in folder.glob("[!.]*/manifest.json"))
    order = list(dict.fromkeys([*asked, *present]))
    within = f"{folder.name}/" if several else ""
    loaded = tuple(
        replace(load_run(folder / name), name=f"{within}{name}", study=folder.name) for name in order
    )
    return Records(folder.name, loaded, bool(asked), reference, commands, question)


def _choices(known: list[str]) -> str:
    if not known:
        return "train one first: python train.py -m pos=rope,alibi"
    shown = ", ".join(known[:8])
    return f"studies with records: {shown}" + (f" and {len(known) - 8} more" if len(known) > 8 else "")


def _short(text: str) -> str:
    return repr(text[:60]) if not re.fullmatch(r"[\w.-]{1,60}", text) else text


def plan_of(folder: Path) -> tuple[list[str], str | None, tuple[str, ...], str | None]:
    """Run names in the order asked for, the reference's label, the commands and the question."""
    try:
        plan = read_sealed(folder / "study.json")
    except FileNotFoundError:
        return [], None, (), None
    except (OSError, ValueError):
        raise ReportError(
            f"study={folder.name}: study.json is damaged; remove it, the runs are then listed by name"
        ) from None
    names = plan.get("runs")
    # A name is a directory inside the study: anything else would read elsewhere.
    safe = (
        [n for n in names if isinstance(n, str) and Path(n).name == n and n != ".."]
        if isinstance(names, list)
        else []
    )
    reference, commands, question = (plan.get(key) for key in ("reference", "commands", "question"))
    return (
        safe,
        reference if isinstance(reference, str) and reference else None,
        tuple(line for line in commands if isinstance(line, str)) if isinstance(commands, list) else (),
        question if isinstance(question, str) and question else None,
    )


def load_run(folder: Path) -> Run:
    """The record of one run directory; what cannot be read has a status and a reason that say so."""
    try:
        manifest = read_manifest(folder)
    except (ValueError, OSError):
        return Run(folder.name, "unreadable", "manifest.json is damaged or of another format")
    if manifest is None:
        return Run(folder.name, "not started", "no record yet")
    missing = _missing(manifest)
    if missing:
        return Run(folder.name, "unreadable", f"manifest.json has no valid {missing}")
    status, reason = str(manifest.get("status")), str(manifest.get("reason") or "")
    if status == "diverged":  # it may have reached a target before
        return Run(folder.name, status, reason, manifest, _reached(folder, manifest))
    if status != "done":
        return Run(folder.name, status, reason, manifest)
    damaged = damaged_files(folder, manifest, ".csv")
    if damaged:
        return Run(folder.name, "unreadable", f"{damaged[0]} is damaged", manifest)
    try:
        validations = sums.validations(folder / "metrics.csv")
        if manifest["config"].get(PART) == TUNING:
            return Run(folder.name, status, reason, manifest, validations)
        return Run(
            folder.name,
            status,
            reason,
            manifest,
            validations,
            sums.segments(folder / "extrapolation.csv"),
            sums.positions(folder / "position.csv"),
            _rescaled(folder, manifest["config"]),
            sums_scheme.probe(folder / "probe.csv"),
            sums_scheme.scheme(folder),
        )
    except (ArithmeticError, ValueError, OSError, csv.Error) as error:
        what = error.args[0] if type(error) is ReportError else "its CSV files cannot be read"
        return Run(folder.name, "unreadable", str(what), manifest)


def _reached(folder: Path, manifest: Mapping[str, Any]) -> tuple[Validation, ...]:
    """The validations of a run that diverged; none where they cannot be read."""
    if damaged_files(folder, manifest, "metrics.csv"):
        return ()
    try:
        return sums.validations(folder / "metrics.csv")
    except (ArithmeticError, ValueError, OSError, csv.Error):
        return ()


def _rescaled(folder: Path, config: Mapping[str, Any]) -> Mapping[str, RescaledMeasurement]:
    """What was measured under other rotations; a record that asks for none need not have the files."""
    files = folder / "rescaled.csv", folder / "rescaled_position.csv"
    wanted = bool(_rescalings(config)) or any(path.exists() for path in files)
    return sums.rescaled(*files) if wanted else {}


def _rescalings(config: Mapping[str, Any]) -> list[str]:
    evaluate = config.get("evaluate")
    asked = evaluate.get("rescale") if isinstance(evaluate, dict) else None
    names = asked if isinstance(asked, list) else []
    return [name for name in names if isinstance(name, str) and name != TRAINED]


def _missing(manifest: Mapping[str, Any]) -> str | None:
    """The first field without which a run belongs to no arm, or None."""
    config = manifest.get("config")
    trainer = config.get("trainer") if isinstance(config, dict) else None
    checks = {
        "pos": isinstance(manifest.get("pos"), str),
        "attention": isinstance(manifest.get("attention"), str),
        "seed": isinstance(manifest.get("seed"), int),
        "config.context_length": isinstance(config, dict) and _positive(config.get("context_length")),
        "data": isinstance(manifest.get("data") or {}, dict),
        "versions": isinstance(manifest.get("versions") or {}, dict),
        "max_length": manifest.get("max_length") is None or _positive(manifest["max_length"]),
        "config.model": isinstance(config, dict) and isinstance(config.get("model") or {}, dict),
        "config.trainer": isinstance(trainer, dict)
        and _positive(trainer.get("max_steps"))
        and _positive(trainer.get("batch_size")),
    }
    return next((name for name, valid in checks.items() if not valid), None)


def _positive(value: object) -> bool:
    return isinstance(value, int) and value > 0
