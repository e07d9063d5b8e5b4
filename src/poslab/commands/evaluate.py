"""Evaluate a trained model again, or one of transformers, without training."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from poslab.commands.verb import conf_with, config_dir, verb
from poslab.config.arguments import read_options, refuse
from poslab.config.errors import UserError
from poslab.config.installation import title

USAGE = """\
Evaluate the model of a finished run again, or a model of transformers, without training it.

  {command} checkpoint=PATH [SETTING=VALUE ...]
  {command} hf=PATH_OR_NAME [SETTING=VALUE ...]

  checkpoint  a run directory (runs/<study>/<run>), its checkpoint.pt, or a W&B artifact such as
              checkpoint-<run>:latest or entity/project/checkpoint-<run>:v3
  evaluations where the record goes (<evaluations>/<run>-<hash>/); default: evaluations

Settings have the names that they have in `{train}`. Those that are not given are the run's own: without any,
the numbers are those of the run's record.

  evaluate.longest=16                 the longest window, as a multiple of the training length L
  evaluate.segments=128               stretches of text that are scored
  evaluate.documents=joined           in short documents, one after another; single: inside of one
  evaluate.sliding_windows=1536       sliding windows at each length
  evaluate.needles=32                 questions for facts in the text, at each length and depth
  evaluate.rescale=[none,ntk,yarn]    a trained rotation under other frequencies as well
  evaluate.rescale_factor=4           s of pi, ntk and yarn; auto: the longest length over L
  trainer.accelerator=cpu             cpu, cuda or auto
  trainer.precision=float32           float32, bfloat16 or auto
  data=text data.path=FILE            other text, in the run's tokens; only data.path=FILE: where the text of
                                      the run is now
  --config-dir DIR                    option files of your own as well, such as DIR/data/NAME.yaml
  logger=local                        without W&B, the default of a run without it; logger=wandb: with it,
                                      logger.project=NAME logger.entity=NAME logger.tags=[A,B]

It prints the loss by length, and records it in evaluations/<run>-<hash>/.

  hf          a folder of AutoModelForCausalLM, or a name on the Hugging Face hub: its weights are read from
              safetensors, no code of it is run, and its own tokenizer cuts the text, else bytes do
  lengths     with hf: the length in tokens that counts as L, and a longest one (lengths=2048,16384);
              default: max_position_embeddings of its configuration, and evaluate.longest times that
  study, runs with hf: the record goes to <runs>/<study>/, default runs/hf: `report study=hf` shows all models

With hf, evaluate.segments is 16 and evaluate.sliding_windows 128 by default, evaluate.rescale takes none, pi,
ntk, dynamic and yarn where the model has RoPE, and evaluate.needles asks its questions in the model's tokens.
"""
KEYS = ("checkpoint", "evaluations", "hf", "lengths", "study", "runs")


@verb("evaluate", USAGE)
def main(arguments: list[str]) -> int:
    """Evaluate the model that the arguments name; return exit status 1 where that failed."""
    folder, arguments = config_dir(arguments)
    settings = [argument for argument in arguments if argument.partition("=")[0] not in KEYS]
    options = read_options([argument for argument in arguments if argument not in settings], KEYS)
    if "hf" in options:
        if folder:
            raise UserError(f"--config-dir {folder} is for a run of poslab: leave it or hf= out")
        return _of_transformers(options, settings)
    if "checkpoint" not in options:
        raise UserError(
            "give one checkpoint=PATH: a run directory, its checkpoint.pt or a W&B artifact; or hf=NAME"
        )
    if unused := options.keys() & {"lengths", "study", "runs"}:
        raise UserError(f"{min(unused)}= is for a model of transformers: give hf=, or leave it out")

    # After the arguments, so that a mistake in them is answered at once; PyTorch last, for the same reason.
    from poslab.config.overrides import evaluation_overrides
    from poslab.study.run.stopping import Stopped, Stopper

    conf, overrides = conf_with([folder] if folder else []), evaluation_overrides(settings)
    directory, artifact = _model(options["checkpoint"], overrides)

    from poslab.study.run.reevaluate import evaluate_again, show

    evaluations = Path(options.get("evaluations", "evaluations"))
    try:
        show(evaluate_again(directory, overrides, conf, evaluations, Stopper(), artifact))
    except Stopped as stop:
        return refuse(title("evaluate"), "stopped; the same command starts the evaluation again", stop.status)
    return 0


def _of_transformers(options: Mapping[str, str], settings: list[str]) -> int:
    if unused := options.keys() & {"checkpoint", "evaluations"}:
        raise UserError(f"{min(unused)}= is for a run of poslab: leave it or hf= out")
    lengths = options["lengths"].strip("[]").split(",") if "lengths" in options else []
    if len(lengths) > 2 or not all(length.strip().isdecimal() and int(length) for length in lengths):
        raise UserError(f"lengths={options['lengths']}: give L, or L and a longest length, in tokens")
    from poslab.library.evaluate_transformers import evaluate_transformers, show

    runs, study = Path(options.get("runs", "runs")), options.get("study", "hf")
    show(evaluate_transformers(options["hf"], settings, runs, study, list(map(int, lengths))))
    return 0


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
