"""Evaluate a trained model again in the caller's own process."""

from os import PathLike
from pathlib import Path

from poslab.config.option_files import installed_conf
from poslab.config.overrides import check_texts, evaluation_overrides
from poslab.library.run_directory import RunDirectory
from poslab.library.weights import run_directory
from poslab.study.run.reevaluate import EvaluationFailedError, evaluate_again
from poslab.study.run.stopping import Stopped, Stopper


def evaluate(
    run: RunDirectory | str | PathLike[str], *overrides: str, evaluations: str | PathLike[str] = "evaluations"
) -> RunDirectory:
    """Evaluate the model of a finished run again, as `poslab evaluate` does, and return the new record.

    `run` is the run's folder or the result of `train`. `overrides` are settings of the evaluation:
    `evaluate(run, "evaluate.longest=16")`. The record is a folder in `evaluations`, with the tables of a run
    but no weights. The same evaluation runs only once. It is logged to W&B if the run was, unless
    `logger=local`. An exception in the evaluation is raised here, and the record then has status failed.
    Raise ConfigError if a setting cannot work.
    """
    check_texts(overrides)
    directory = run_directory(run)
    folder, settings = Path(evaluations).expanduser().resolve(), evaluation_overrides(overrides)
    try:
        evaluated = evaluate_again(directory, settings, installed_conf(), folder, Stopper(ends_process=False))
    except Stopped as stop:
        raise KeyboardInterrupt(str(stop)) from None
    except EvaluationFailedError as failed:
        raise failed.__cause__ or failed from None
    return RunDirectory(evaluated.directory)
