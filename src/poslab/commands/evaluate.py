"""Evaluate a trained model again, without training."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from poslab.config.arguments import FAILED, ArgumentError, help_requested, read_options, refuse
from poslab.config.installation import title, typed

USAGE = """\
Evaluate the model of a finished run again, without training it.

  {command} checkpoint=PATH [SETTING=VALUE ...]

  checkpoint  a run directory (runs/<study>/<run>), its checkpoint.pt, or a W&B artifact such as
              checkpoint-<run>:latest or entity/project/checkpoint-<run>:v3
  evaluations where the record goes (<evaluations>/<run>-<hash>/); default: evaluations

Settings have the names that they have in `{train}`. Those that are not given are the run's own: without any,
the numbers are those of the run's record.

  evaluate.longest=16                 the longest window, as a multiple of the training length L
  evaluate.segments=128               stretches of text that are scored
  evaluate.sliding_windows=1536       sliding windows at each length
  evaluate.rescale=[none,ntk,yarn]    a trained rotation under other frequencies as well
  evaluate.rescale_factor=4           s of pi, ntk and yarn; auto: the longest length over L
  trainer.accelerator=cpu             cpu, cuda or auto
  trainer.precision=float32           float32, bfloat16 or auto
  data=text data.path=FILE            other text, for a model of bytes; only data.path=FILE: where the text of
                                      the run is now
  logger=local                        without W&B, the default of a run without it; logger=wandb: with it,
                                      logger.project=NAME logger.entity=NAME logger.tags=[A,B]

It prints the loss by length, and records it in evaluations/<run>-<hash>/.
"""
KEYS = ("checkpoint", "evaluations")


def main(arguments: list[str]) -> int:
    """Return exit status 0, 1 where something failed, or 2 with one line on stderr for a wrong command."""
    if help_requested(arguments, USAGE.format(command=typed("evaluate"), train=typed("train"))):
        return 0
    settings = [argument for argument in arguments if argument.partition("=")[0] not in KEYS]
    try:
        options = read_options([argument for argument in arguments if argument not in settings], KEYS)
    except ArgumentError as error:
        return refuse(title("evaluate"), str(error))
    if "checkpoint" not in options:
        wanted = "give one checkpoint=PATH: a run directory, its checkpoint.pt or a W&B artifact"
        return refuse(title("evaluate"), wanted)

    # After the arguments, so that a mistake in them is answered at once; PyTorch last, for the same reason.
    from poslab.config.overrides import evaluation_overrides
    from poslab.config.schema import ConfigError
    from poslab.config.text import error_text, one_line

    try:
        overrides = evaluation_overrides(settings)
        return _evaluate(options["checkpoint"], Path(options.get("evaluations", "evaluations")), overrides)
    except ConfigError as error:
        return refuse(title("evaluate"), one_line(error))
    except OSError as error:
        return refuse(title("evaluate"), error_text(error), FAILED)


def _evaluate(checkpoint: str, evaluations: Path, overrides: Mapping[str, Any]) -> int:
    from poslab.loggers.fetch.account import SourceError
    from poslab.record.locks import TakenError
    from poslab.study.run.stopping import Stopped

    try:
        directory, artifact = _model(checkpoint, overrides)
        from poslab.config.option_files import installed_conf
        from poslab.study.run.reevaluate import evaluate_again

        return evaluate_again(directory, overrides, installed_conf(), evaluations, artifact)
    except SourceError as error:
        return refuse(title("evaluate"), str(error), error.status)
    except TakenError as error:
        message = f"another command uses the same files: it holds the lock {error}"
        return refuse(title("evaluate"), message, FAILED)
    except Stopped as stop:
        return refuse(title("evaluate"), "stopped; the same command starts the evaluation again", stop.status)


def _model(checkpoint: str, overrides: Mapping[str, Any]) -> tuple[Path, str | None]:
    """Return the folder of the model on this machine, and its name in W&B if it is downloaded from there."""
    from poslab.loggers.fetch.model import fetch_model, resolve_checkpoint
    from poslab.loggers.send.login import forget_client

    place = resolve_checkpoint(checkpoint)
    if isinstance(place, Path):
        return place, None
    account = place.account(overrides.get("logger.project"), overrides.get("logger.entity"))
    try:
        return fetch_model(account, place.name)
    finally:
        forget_client()  # a run that this process logs later has other settings than for reading
