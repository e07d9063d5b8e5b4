"""Train a run in the caller's own process, for notebooks, debuggers and programs."""

from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from poslab.config.classes import check_callbacks
from poslab.config.request import Request
from poslab.config.schema import ConfigError
from poslab.config.text import NAME, one_line
from poslab.library.run_directory import RunDirectory
from poslab.record.study_list import enlist
from poslab.study.display.run_bar import RunDisplay
from poslab.study.run.execute import run
from poslab.study.run.identity import check_imported
from poslab.study.run.plan import plan
from poslab.study.run.stopping import Stopped, Stopper

if TYPE_CHECKING:
    from pytorch_lightning import Callback
    from pytorch_lightning.loggers import Logger


def train(
    request: Request,
    study: str | PathLike[str],
    loggers: Sequence["Logger"] = (),
    callbacks: Sequence["Callback"] = (),
) -> RunDirectory:
    """Train and evaluate the run that `compose` describes, in this process.

    Its record is a folder in the folder `study`, such as runs/mine, named as `train.py` would name it, so
    that `poslab.read("mine")` and `report.py study=mine` cover all runs trained there. `print`,
    `breakpoint()` and profilers work as in any function. An exception in the run is raised here, and the
    record then has status failed. A finished run is returned unchanged, and a stopped run resumes with the
    same result to the bit. `loggers` and `callbacks` are Lightning's, added to those of the request. They are
    not called for a finished run and are not part of its identity: name callbacks that change the result in
    the request (`compose("callbacks=[early_stopping]")`). Ctrl-C writes a checkpoint and raises
    KeyboardInterrupt. The settings `runs`, `reports`, `study` and `launcher` have no effect. Raise
    ConfigError if the settings cannot work.
    """
    folder = Path(study).expanduser().resolve()
    if not isinstance(request, Request):
        raise ConfigError("pass poslab.train a result of poslab.compose, such as compose('pos=rope')")
    if request.config.trainer.devices * request.config.trainer.nodes > 1:
        raise ConfigError("poslab.train uses one process: leave trainer.devices and trainer.nodes at 1")
    if request.config.plan:
        raise ConfigError("plan works only with train.py: leave it out")
    if request.config.tune.factors:
        raise ConfigError("poslab.train trains one run, tune needs several: leave tune out, or use train.py")
    if not NAME.fullmatch(folder.name):
        raise ConfigError(
            f"{one_line(folder, 200)} cannot be a study: its last part must be at most 100 letters, digits, "
            "'.', '_' or '-', the first a letter or digit"
        )
    if callbacks:
        check_callbacks(callbacks)
    config = request.config.model_copy(update={"study": folder.name})
    check_imported(config)
    job = plan(replace(request, config=config), folder.parent)
    enlist(folder, [job.directory.name], "poslab.train", config.reference, config.question, config.primary)
    display = RunDisplay(job.request.title)
    try:
        with Stopper(ends_process=False).installed() as stopper:
            run(job, display, stopper, raises=True, callbacks=callbacks, loggers=loggers)
    except Stopped as stop:
        raise KeyboardInterrupt(str(stop)) from None
    return RunDirectory(job.directory)
