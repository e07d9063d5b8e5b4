"""Loggers that show a run during training (W&B, TensorBoard, others), and the exchange of records with W&B.

A new logger takes two files. NAME.py in this folder, or a module of another package, has one public class: a
`LightningLogger`, which creates a Lightning logger, or a `RunLogger` if that is not enough. It is found by
the module's name. Its `options_class` declares the options; conf/logger/NAME.yaml has a section `NAME:` with
`name: NAME` and a default for every option. tensorboard.py is the simplest example.

The record stays the source of every result, and no logger is part of a run's identity. An exception in a
logger is printed in one line and ends that logger, not the run. The folders here are for W&B: send/ sends
runs, evaluations and reports, fetch/ downloads records and models, dashboard/ creates views of a study.
"""

import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from poslab.config.classes import instantiated, locate
from poslab.config.registry import find, options_of
from poslab.config.request import WANDB, Config, flat_settings
from poslab.config.schema import ConfigError, Options
from poslab.config.text import one_line, plain, without_secrets
from poslab.loggers.send.card import Card
from poslab.loggers.send.charts import summary, training_row
from poslab.record.facts import Manifest
from poslab.record.manifest import parse_manifest
from poslab.record.reader import Run, load_evaluation

if TYPE_CHECKING:
    from pytorch_lightning.loggers import Logger

LOGGERS = "poslab.loggers"  # the package with poslab's own loggers
DIRECTORY = "{directory}"  # replaced by the run's folder in arguments of a Lightning logger
FINISH_SECONDS = 180.0  # the time a logger has at the end to send its remaining data
LOGGER_FAILED = " failed; the record is complete without it"  # after a title in a run's log; read by Pool


@dataclass(frozen=True)
class OpenedRun:
    """The run that a logger shows."""

    config: Config
    card: Card  # its name, tags and settings, for display in tables
    directory: Path
    manifest: Manifest  # as written so far
    rows: Sequence[Mapping[str, Any]]  # of metrics.csv so far: not empty if an interrupted run resumes
    # Stops the run; takes the caller's name, such as W&B. Any thread may call it. None: it has been trained.
    stop: Callable[[str], None] | None = None
    weights: str | None = None  # for an evaluation, the W&B artifact with the weights


class RunLogger(ABC):
    """A logger of runs. Each process of an interrupted run opens a new one, with the rows so far."""

    options_class: ClassVar[type[Options]] = Options
    title: str = "a logger"  # its name in messages
    files: ClassVar[Sequence[str]] = ()  # patterns of files that it writes in a run's folder, for `clean`
    package: ClassVar[str] = ""  # a package that it needs and that poslab does not install
    place: Mapping[str, Any] | None = None  # W&B only: where the run is shown, for the manifest's `wandb`

    @property
    def wanted(self) -> bool:
        """False if an environment variable switches the logger off."""
        return True

    def __init__(self, options: Any) -> None:
        """Raise ConfigError if the package that the logger needs is missing."""
        if self.package and find_spec(self.package) is None:
            raise ConfigError(f"logger={self.package} needs a package: pip install {self.package}")
        self.options = options

    @abstractmethod
    def open(self, run: OpenedRun) -> None:
        """Begin to show the run. Training waits until this returns, as it does for `log`."""

    @abstractmethod
    def log(self, row: Mapping[str, Any]) -> None:
        """Show a row of metrics.csv, which may have memory_bytes in addition."""

    @abstractmethod
    def finish(self, manifest: str, exit_code: int) -> None:
        """Show the end of the run. All its files are written; `manifest` is the text of its manifest.

        Called in a separate thread; returns when all data is sent.
        """

    def abandon(self) -> None:  # noqa: B027 - most have nothing to release
        """Release files and processes without waiting, after a failure or while `finish` is still running."""


class LightningLogger(RunLogger):
    """A logger that passes the settings, the curve and the final figures to one of Lightning's loggers.

    `train/loss` and `validation/loss` are in nats per token, by optimizer step. The figures of summary.csv
    are named `summary/...`. A resumed run logs its earlier rows again.
    """

    @abstractmethod
    def make(self, directory: Path) -> "Logger":
        """Return the logger for the run in `directory`. Import Lightning here, since that takes seconds."""

    def open(self, run: OpenedRun) -> None:
        self._logger, self._directory, self._step = self.make(run.directory), run.directory, 0
        self.title = type(self._logger).__name__
        self._logger.log_hyperparams(flat_settings(run.config.result_settings()))
        for row in run.rows:
            self.log(row)

    def log(self, row: Mapping[str, Any]) -> None:
        self._step = int(row["step"])
        self._logger.log_metrics(training_row(row), self._step)

    def finish(self, manifest: str, exit_code: int) -> None:
        facts = parse_manifest(manifest.encode())
        if facts.status == "done":
            self._logger.log_metrics(final_figures(load_evaluation(self._directory, facts)), self._step)
        self._logger.save()
        self._logger.finalize("failed" if exit_code else "success")


class _WithoutOptions(LightningLogger):
    """A Lightning logger, given by its class in the configuration or passed by the caller."""

    def __init__(self, maker: "Callable[[Path], Logger]") -> None:
        super().__init__(Options())
        self.maker = maker

    def make(self, directory: Path) -> "Logger":
        return self.maker(directory)


def _of_class(key: str, section: Mapping[str, Any], directory: Path) -> "Logger":
    """Return the logger for +logger.NAME={_target_: CLASS}. Raise ConfigError."""
    from pytorch_lightning.loggers import Logger

    placed = {
        name: value.replace(DIRECTORY, str(directory)) if isinstance(value, str) else value
        for name, value in section.items()
    }
    return instantiated(key, placed, Logger)  # type: ignore[type-abstract]


def final_figures(run: Run) -> dict[str, float]:
    """Return the numbers of a finished run's summary.csv that loggers get, as `summary/...`."""
    numbers = {name: value for name, value in summary(run).items() if isinstance(value, int | float)}
    return {f"summary/{name}": float(value) for name, value in numbers.items()}


def build_logger(key: str, section: Mapping[str, Any]) -> RunLogger:
    """Return the logger that a section of a configuration describes, not yet opened. Raise ConfigError."""
    if "_target_" in section:
        locate(f"logger.{key}", section)
        return _WithoutOptions(partial(_of_class, f"logger.{key}", section))
    where = "logger" if section["name"] == WANDB else f"logger.{key}"
    kind = find(section["name"], RunLogger, LOGGERS, f"{where}.name")  # type: ignore[type-abstract]
    return kind(options_of(section, kind, "name", where))


def checked(sections: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return a configuration's loggers with all options, including those set by environment variables.

    Raise ConfigError for an unknown logger or option, and if a package that a logger needs is missing.
    """
    return {
        key: {**section, **build_logger(key, section).options.model_dump(mode="json")}
        for key, section in sections.items()
    }


def open_loggers(run: OpenedRun, given: Sequence["Logger"] = ()) -> "list[Guarded]":
    """Open and return the loggers in the run's configuration, then those passed by the caller.

    Raise ConfigError if a class named in the configuration is not a logger.
    """
    loggers = [build_logger(key, section) for key, section in run.config.logger.items()]
    loggers += [_WithoutOptions(lambda directory, logger=logger: logger) for logger in given]  # type: ignore[misc]
    opened: list[Guarded] = []
    try:
        for logger in loggers:
            if logger.wanted:
                opened.append(Guarded(logger))
                opened[-1].open(run)
    except BaseException:  # a logger refuses, or the run is stopped while one opens
        for guarded in opened:
            guarded.abandon()
        raise
    return opened


class Guarded:
    """A logger that is called until it fails; the failure is printed in one line and noted in `place`."""

    def __init__(self, logger: RunLogger) -> None:
        self._logger = logger
        self._over = False  # finished, failed or abandoned: no longer called
        self._noted: dict[str, Any] = {}

    @property
    def place(self) -> Mapping[str, Any] | None:
        """Where the run is shown, and whether all its data was sent."""
        return None if self._logger.place is None else {**self._logger.place, **self._noted}

    def open(self, run: OpenedRun) -> None:
        """Open the logger. Raise ConfigError if it refuses."""
        self._call(self._logger.open, run, refusal=ConfigError)

    def log(self, row: Mapping[str, Any]) -> None:
        self._call(self._logger.log, row)

    def finish(self, manifest: str, exit_code: int, wait: float | None = None) -> None:
        """Finish the logger, or abandon it after `wait` seconds (default: FINISH_SECONDS)."""
        thread = threading.Thread(target=self._finish, args=(manifest, exit_code), daemon=True)
        try:
            thread.start()
            thread.join(FINISH_SECONDS if wait is None else wait)
        finally:  # also if the run is stopped while this waits
            abandoned = not self._over
            self.abandon()
        if abandoned and wait is None:
            waited = f"{self._logger.title} did not finish in {FINISH_SECONDS:g} s"
            print(f"{waited}; unsent data is on disk", file=sys.stderr)

    def _finish(self, manifest: str, exit_code: int) -> None:
        self._call(self._logger.finish, manifest, exit_code)
        if not self._over:
            self._noted["complete"] = True
            self._over = True

    def abandon(self) -> None:
        """Abandon the logger silently."""
        if not self._over:
            self._over = True
            with suppress(Exception):
                self._logger.abandon()

    def _call(
        self, method: Callable[..., None], *args: Any, refusal: type[Exception] | tuple[()] = ()
    ) -> None:
        if self._over:
            return
        try:
            method(*args)
        except refusal:
            raise
        except Exception as error:
            if not self._over:  # it may have been abandoned in the meantime
                reason = self._noted["failed"] = error_line(error)
                print(f"{self._logger.title}{LOGGER_FAILED}: {reason}", file=sys.stderr, flush=True)
                self.abandon()


def error_line(error: Exception) -> str:
    """Return an error in one line, without directories."""
    return f"{type(error).__name__}: {plain(without_secrets(one_line(error)))}"
