"""Loggers of Lightning beside W&B: of the configuration, `logger=[wandb,mine]`, and of the caller's.

They are told the settings, a row of losses after each validation, and the final figures. What one of them
raises ends that logger, in one line, and not the run.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from poslab.config.request import Config, flat_settings
from poslab.record.manifest import parse_manifest
from poslab.record.reader import load_evaluation
from poslab.tracking.guarded import Guarded
from poslab.tracking.send.charts import summary, training_row

if TYPE_CHECKING:
    from pytorch_lightning.loggers import Logger

DIRECTORY = "{directory}"  # in an argument of a logger: the run's folder


class LightningLogger:
    """A tracker (poslab.tracking.guarded.Tracker) that hands everything to a logger of Lightning.

    `train/loss` and `validation/loss` are in nats a token, by the optimizer step. A resumed run logs its
    earlier rows again.
    """

    def __init__(
        self, logger: "Logger", config: Config, directory: Path, rows: Iterable[Mapping[str, Any]]
    ) -> None:
        self.place: Mapping[str, Any] = {}
        self._logger = logger
        self._directory = directory
        self._step = 0
        logger.log_hyperparams(flat_settings(config.result_settings()))
        for row in rows:
            self.log(row)

    def log(self, row: Mapping[str, Any]) -> None:
        self._step = int(row["step"])
        self._logger.log_metrics(training_row(row), self._step)

    def finish(self, manifest: str, exit_code: int) -> None:
        facts = parse_manifest(manifest.encode())
        if facts.status == "done":
            figures = summary(load_evaluation(self._directory, facts))
            numbers = {
                f"summary/{name}": float(value)
                for name, value in figures.items()
                if isinstance(value, int | float)
            }
            self._logger.log_metrics(numbers, self._step)
        self._logger.save()
        self._logger.finalize("failed" if exit_code else "success")

    def abandon(self) -> None:
        pass


def open_loggers(
    config: Config, directory: Path, rows: Iterable[Mapping[str, Any]], given: Sequence["Logger"] = ()
) -> list[Guarded]:
    """Those of the configuration and those that are `given`, with the rows so far.

    Raises ConfigError where one of the configuration cannot be made.
    """
    loggers = list(given)
    if config.logger.others:
        from pytorch_lightning.loggers import Logger

        from poslab.config.classes import instantiated

        for name, section in config.logger.others.items():
            placed = {
                key: value.replace(DIRECTORY, str(directory)) if isinstance(value, str) else value
                for key, value in section.items()
            }
            loggers.append(instantiated(f"logger.{name}", placed, Logger))  # type: ignore[type-abstract]
    return [
        Guarded(type(logger).__name__, partial(LightningLogger, logger, config, directory, rows))
        for logger in loggers
    ]
