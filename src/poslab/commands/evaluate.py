"""Evaluate a trained model again, or a model of transformers, without training it."""

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
  evaluations the folder for the record (<evaluations>/<run>-<hash>/); default: evaluations

Settings have the same names as in `{train}`, and default to those of the run. Without any, the
evaluation repeats the numbers of the run's record.

  evaluate.longest=16                 the longest window, as a multiple of the training length L
  evaluate.segments=128               stretches of text to score
  evaluate.documents=joined           join documents that are too short; single: each segment lies in one
  evaluate.sliding_windows=1536       sliding windows per length
  evaluate.needles=32                 questions about facts in the text, at each length and depth
  evaluate.rescale=[none,ntk,yarn]    also evaluate a trained rotation with other frequencies
  evaluate.rescale_factor=4           factor s of pi, ntk and yarn; auto: the longest length over L
  trainer.accelerator=cpu             cpu, cuda or auto
  trainer.precision=float32           float32, bfloat16 or auto
  data=text data.path=FILE            another text, in the run's tokens; data.path=FILE without data=: the
                                      run's own text, at another path
  --config-dir DIR                    also use your own option files, such as DIR/data/NAME.yaml
  logger=local                        do not use W&B (default if the run did not use it); logger=wandb:
                                      use it, with logger.project=NAME logger.entity=NAME logger.tags=[A,B]

The command prints the loss by length, and writes its record to evaluations/<run>-<hash>/.

  hf          a folder for AutoModelForCausalLM, or a name on the Hugging Face hub: weights are read from
              safetensors, no code of the model is run, and its tokenizer (else bytes) gives the tokens
  lengths     with hf: the length L in tokens, and optionally the longest length (lengths=2048,16384);
              default: max_position_embeddings in its configuration, and evaluate.longest times that
  study, runs with hf: the record goes to <runs>/<study>/, default runs/hf; `report study=hf` shows all models

With hf, evaluate.segments is 16 and evaluate.sliding_windows 128 by default, evaluate.rescale takes none, pi,
ntk, dynamic and yarn if the model has RoPE, and evaluate.needles asks its questions in the model's tokens.
"""
KEYS = ("checkpoint", "evaluations", "hf", "lengths", "study", "runs")


@verb("evaluate", USAGE)
def main(arguments: list[str]) -> int:
    """Evaluate the model that the arguments name, and return the exit status."""
    folder, arguments = config_dir(arguments)
    settings = [argument for argument in arguments if argument.partition("=")[0] not in KEYS]
    options = read_options([argument for argument in arguments if argument not in settings], KEYS)
    if "hf" in options:
        if folder:
            raise UserError(f"--config-dir {folder} works only with checkpoint=: leave it or hf= out")
        return _of_transformers(options, settings)
    if "checkpoint" not in options:
        raise UserError(
            "give checkpoint=PATH (a run directory, its checkpoint.pt or a W&B artifact), or hf=NAME"
        )
    if unused := options.keys() & {"lengths", "study", "runs"}:
        raise UserError(f"{min(unused)}= works only with hf=: add hf=, or leave it out")

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
        return refuse(title("evaluate"), "stopped; run the same command to evaluate again", stop.status)
    return 0


def _of_transformers(options: Mapping[str, str], settings: list[str]) -> int:
    if unused := options.keys() & {"checkpoint", "evaluations"}:
        raise UserError(f"{min(unused)}= does not work with hf=: leave one of them out")
    lengths = options["lengths"].strip("[]").split(",") if "lengths" in options else []
    if len(lengths) > 2 or not all(length.strip().isdecimal() and int(length) for length in lengths):
        raise UserError(f"lengths={options['lengths']}: give L, or L and the longest length, in tokens")
    from poslab.library.evaluate_transformers import evaluate_transformers, show

    runs, study = Path(options.get("runs", "runs")), options.get("study", "hf")
    show(evaluate_transformers(options["hf"], settings, runs, study, list(map(int, lengths))))
    return 0


def _model(checkpoint: str, overrides: Mapping[str, Any]) -> tuple[Path, str | None]:
    """Return the model's folder on this machine, and its name in W&B if it was downloaded from there."""
    from poslab.loggers.fetch.model import fetch_model, resolve_checkpoint
    from poslab.loggers.send.login import forget_client

    place = resolve_checkpoint(checkpoint)
    if isinstance(place, Path):
        return place, None
    account = place.account(overrides.get("logger.project"), overrides.get("logger.entity"))
    try:
        return fetch_model(account, place.name)
    finally:
        forget_client()  # logging a run later needs a client with other settings
