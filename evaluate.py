"""Evaluate a trained model again, without training: python evaluate.py checkpoint=PATH evaluate.longest=16"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

USAGE = """\
Evaluate the model of a finished run again, without training it.

  python evaluate.py checkpoint=PATH [SETTING=VALUE ...]

  checkpoint  a run directory (runs/<study>/<run>), its checkpoint.pt, or a W&B artifact such as
              checkpoint-<run>:latest or entity/project/checkpoint-<run>:v3

Settings are called as train.py calls them. What is not given is as the run has it, so that nothing given
makes the very numbers of the run's record again:

  evaluate.longest=16                 the longest window, as a multiple of the training length L
  evaluate.segments=128               stretches of text that are scored
  evaluate.sliding_windows=512        sliding windows at each length
  evaluate.rescale=[none,ntk,yarn]    a trained rotation under other frequencies as well
  evaluate.rescale_factor=4           s of pi, ntk and yarn; auto: the longest length over L
  trainer.accelerator=cpu             cpu, cuda or auto
  trainer.precision=float32           float32, bfloat16 or auto
  data=text data.path=FILE            other text, for a model of bytes; data.path=FILE alone: where a text of
                                      one's own lies now
  logger=local                        no W&B; else logger.project=NAME logger.entity=NAME

It prints losses by length, and records them in evaluations/<run>-<hash>/.
"""


def main(arguments: list[str]) -> int:
    """Exit code 0, 1 where something failed, or 2 with one line on stderr where the command is wrong."""
    if {"-h", "--help", "help"} & set(arguments):
        print(USAGE, end="")
        return 0
    named = [argument for argument in arguments if argument.startswith("checkpoint=")]
    if len(named) != 1 or named == ["checkpoint="]:
        return _refuse("say one checkpoint=PATH: a run directory, its checkpoint.pt or a W&B artifact")

    # After the arguments, so that a mistake in them is answered at once; PyTorch last, for the same reason.
    from poslab.config.overrides import evaluation_overrides
    from poslab.config.schema import ConfigError

    try:
        wanted = evaluation_overrides([argument for argument in arguments if argument not in named])
        return _evaluated(named[0].partition("=")[2], wanted)
    except ConfigError as error:
        return _refuse(" ".join(str(error).split()))
    except OSError as error:
        return _refuse(f"{error.strerror or error}: {error.filename or ''}".rstrip(": "), 1)


def _evaluated(name: str, wanted: Mapping[str, Any]) -> int:
    from poslab.record.locks import TakenError
    from poslab.study.run.stopping import Stopped
    from poslab.tracking.fetch.account import SourceError

    try:
        directory, artifact = _model(name, wanted)
        from poslab.study.run.reevaluate import evaluate_again

        conf = Path(__file__).parent / "conf"
        return evaluate_again(directory, wanted, conf, Path("evaluations"), artifact)
    except SourceError as error:
        return _refuse(str(error), error.status)
    except TakenError as error:
        return _refuse(f"another command holds {error}: is it at the same?", 1)
    except Stopped as stop:
        return _refuse("stopped; the same command begins again", stop.status)


def _model(name: str, wanted: Mapping[str, Any]) -> tuple[Path, str | None]:
    """Where the model is on this machine, and what W&B calls it where it comes from there."""
    from poslab.tracking.fetch.located import resolve_checkpoint

    place = resolve_checkpoint(name)
    if isinstance(place, Path):
        return place, None
    from poslab.tracking.fetch.account import closed, opened
    from poslab.tracking.fetch.model import fetch_model

    project, entity = (wanted.get(f"logger.{key}") for key in ("project", "entity"))
    try:
        return fetch_model(opened(place.project or project, place.entity or entity), place.name)
    finally:
        closed()


def _refuse(message: str, status: int = 2) -> int:
    print(f"evaluate.py: {message}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
