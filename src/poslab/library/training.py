"""A run trained in the caller's own process: for notebooks, debuggers and programs."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import hydra
import pandas
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from poslab.config.checking import check
from poslab.config.installation import conf_folder
from poslab.config.mistakes import explained, read_arguments
from poslab.config.option_files import installed_conf
from poslab.config.request import Config, Request
from poslab.config.schema import ConfigError
from poslab.config.sweep import Composer
from poslab.library.weights import load
from poslab.measures import measurements
from poslab.model.gpt import GPT
from poslab.record.facts import Manifest
from poslab.record.manifest import read_manifest
from poslab.record.schema import METRICS
from poslab.record.study_list import enlist
from poslab.study.display.run_bar import RunDisplay
from poslab.study.run.make import run
from poslab.study.run.plan import plan
from poslab.study.run.start import request_of
from poslab.study.run.stopping import Stopped, Stopper

if TYPE_CHECKING:
    from pytorch_lightning import Callback
    from pytorch_lightning.loggers import Logger


@dataclass(frozen=True)
class RunDirectory:
    """The folder of a run: its manifest, its tables and its trained model."""

    path: Path

    @property
    def manifest(self) -> Manifest:
        """The facts of the run: status, configuration, text, device, tokens, and more, as fields."""
        manifest = read_manifest(self.path)
        if manifest is None:
            raise ConfigError(f"{self.path} is no run: it has no manifest")
        return manifest

    def table(self, name: str) -> pandas.DataFrame:
        """Return a table of the run: "metrics", "extrapolation", "position", or another of its CSV files.

        A column that a later version added holds NaN. Raise ConfigError, with the names of the tables, for
        an unknown one.
        """
        tables = {path.stem: path for path in sorted(self.path.glob("*.csv"))}
        if name not in tables:
            raise ConfigError(f"{self.path} has no table {name}; there are {', '.join(tables) or 'none'}")
        table = pandas.read_csv(tables[name])
        schemas = (METRICS, *(measurement.table for measurement in measurements()))
        optional = next((schema.optional for schema in schemas if schema.file == tables[name].name), ())
        return table.reindex(columns=[*dict.fromkeys([*table.columns, *optional])])

    def model(self) -> GPT:
        """Return the trained model, in evaluation mode on the CPU, as `poslab.load` does."""
        return load(self.path)


def compose(*overrides: str) -> Request:
    """Compose the settings of one run from arguments as for `train.py`: `compose("pos=alibi", "seed=1")`.

    Raise ConfigError, one line, where an argument is wrong.
    """
    conf = installed_conf()
    read_arguments(overrides, conf)
    if whole := [text for text in overrides if re.match(r"[+~]*(hydra\b|sweep=)|-", text)]:
        raise ConfigError(f"{whole[0]}: compose takes the settings of one run; train.py takes all others")
    of_caller = GlobalHydra.instance().hydra  # which an application of the caller's may be using
    GlobalHydra.instance().clear()
    try:
        with hydra.initialize_config_dir(str(conf_folder().resolve()), version_base="1.3"):
            composer = Composer(lambda given: hydra.compose("config", given, return_hydra_config=True))
            composed = composer.composed(overrides)
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(explained(error, conf)) from None
    finally:
        GlobalHydra.instance().hydra = of_caller
    return request_of(composed.settings, composed.choices, overrides, composed.conf)


def train(
    request: Request,
    study: str | PathLike[str],
    loggers: Sequence["Logger"] = (),
    callbacks: Sequence["Callback"] = (),
) -> RunDirectory:
    """Train and evaluate the run that `compose` describes, in this process.

    Its record is a folder in the folder `study`, such as runs/mine, with the name that `train.py` would use,
    so that `poslab.read("mine")` and `report.py study=mine` have all runs trained there. `print`,
    `breakpoint()` and profilers work as in any function. An exception in the run is raised here, and the
    record then has status failed. A finished run is returned as it is, and a stopped run resumes, to the same
    bits. `loggers` and `callbacks` are Lightning's, added to those of the request. A finished run calls none
    of them, and they are not part of its identity: name callbacks that change the result in the request
    (`compose("callbacks=[early_stopping]")`). Ctrl-C writes a checkpoint and raises KeyboardInterrupt. The
    settings `runs`, `reports`, `study` and `launcher` have no effect. Raise ConfigError where the settings
    cannot work.
    """
    folder = Path(study).expanduser().resolve()
    if not isinstance(request, Request):
        raise ConfigError("give poslab.train what poslab.compose returns: compose('pos=rope')")
    if request.config.trainer.devices * request.config.trainer.nodes > 1:
        raise ConfigError("poslab.train is one process: leave trainer.devices and trainer.nodes at 1")
    if request.config.plan:
        raise ConfigError("plan is for train.py, and poslab.train trains: leave plan out")
    if request.config.tune.factors:
        raise ConfigError("poslab.train trains one run and tune several: leave tune out, or use train.py")
    config = check(Config, {**request.config.model_dump(mode="json"), "study": folder.name}, "")
    job = plan(replace(request, config=config), folder.parent)
    job.check_disk()
    enlist(folder, [job.directory.name], "poslab.train", config.reference, config.question, config.primary)
    stopper = Stopper()
    display = RunDisplay(job.request.title)
    try:
        with stopper.installed():
            run(job, display, stopper, raises=True, callbacks=callbacks, loggers=loggers)
    except Stopped as stop:
        raise KeyboardInterrupt(str(stop)) from None
    return RunDirectory(job.directory)
