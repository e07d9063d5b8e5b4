"""Plan a run: check its request, prepare its data and determine its directory."""

import json
from pathlib import Path
from typing import Any

from poslab.config.classes import callbacks_of
from poslab.config.request import Config, Request, Start
from poslab.config.schema import FACTOR_METHODS, HELD_OUT, RESCALINGS, ConfigError, longest_length
from poslab.data.cache import prepare
from poslab.data.corpus import check_lengths
from poslab.data.windows import Starts
from poslab.loggers import checked as checked_loggers
from poslab.objectives import build_objective
from poslab.record.schema import FORMAT
from poslab.study.launch.devices import bfloat16_available, cpu_has_bfloat16, cuda_available
from poslab.study.run.budget import check_memory, check_steps, size_of
from poslab.study.run.facts import machine_facts
from poslab.study.run.identity import code_fingerprints, part_modules, run_identity, run_name
from poslab.study.run.job import Job
from poslab.study.run.preparation import Preparation, checked
from poslab.study.run.questions import check_needles, check_probe, check_task
from poslab.study.run.start import FROM, check_length, check_text

LONGEST = {"cpu": 8, "cuda": 16}  # evaluate.longest=auto
COMPILED_STEPS = 2_000  # from this many steps on, compile=auto compiles on a GPU, which takes up to a minute


def plan(
    request: Request,
    runs: Path,
    local: bool = True,
    preparation: Preparation | None = None,
    trained: bool = False,
    tokenizer: Path | None = None,
) -> Job:
    """Check the request, prepare its data and return the job. Raise ConfigError, in one line, if that fails.

    `local` is whether the run is for this machine. The requests of a command share a `preparation`. `trained`
    is whether the model exists and is only evaluated. A `tokenizer` is a file that is used in place of
    `data.vocabulary`, which remains the run's setting.
    """
    preparation = preparation or Preparation()
    config = resolve(request.config, local)
    if config.logger:
        config = config.model_copy(update={"logger": checked_loggers(config.logger)})
    data = config.data
    if tokenizer is not None:
        config = config.model_copy(update={"data": {**data, "vocabulary": str(tokenizer)}})
    # A lower bound, before the parts are built: those of a huge model would fill the memory themselves.
    memory_gb = config.launcher.get("memory_gb")
    check_memory(size_of(config, max_length=config.context_length, trained=trained), local, memory_gb)
    if not trained:
        check_steps(config)
    config, size = checked(config, preparation, trained)
    if config.callbacks:
        preparation.once(str(config.callbacks), lambda: callbacks_of(config.callbacks))
    check_memory(size, local, memory_gb)
    text = json.dumps(config.data, sort_keys=True)
    corpus = preparation.once(text, lambda: prepare(config.data))
    config = config.model_copy(update={"data": data})
    if tuning := config.part == "tuning":
        corpus = corpus.for_tuning()
    _check_objective(config, trained)
    if config.data["source"] == "none":
        check_task(config, request)
    if config.probe.tasks:
        check_probe(config)
    if config.evaluate.needles:
        check_needles(config)
    if config.data.get("source") != "none":  # a task reads none of it
        scored = config.evaluate.documents, HELD_OUT if tuning else data.get("held_out", HELD_OUT)
        check_lengths(corpus, config.context_length, longest_length(config), *scored)
    if config.data.get("windows") == "within":
        Starts(corpus, config.context_length, within=True)
    code = preparation.once(part_modules(config), lambda: code_fingerprints(config))
    if request.start is not None:
        check_length(config, request.start)
        check_text(config, corpus, request.start)
    identity = run_identity(config, code, corpus.fingerprint, request.start)
    study = runs / config.study
    # The run may have a directory with another name: pos=rope_500 and pos=rope pos.base=500 are the same run.
    name = preparation.once(study, lambda: _directories(study)).get(identity)
    name = name or run_name((request.pos, request.attention), config.seed, identity)
    facts = {
        "format": FORMAT,
        "study": config.study,
        "identity": identity,
        "pos": request.pos,
        "attention": request.attention,
        "seed": config.seed,
        "config": recorded_settings(config, request.start),
        "origin": request.start and request.start.origin(),
        "code": code.shared,
        "code_parts": code.parts,
        "code_evaluation": code.evaluation,
        "data": corpus.describe(),
        "precision": config.trainer.precision,
        **(preparation.once(machine_facts, machine_facts) if local else {}),
    }
    return Job(request, config, size, corpus, code, identity, study / name, facts)


def _directories(study: Path) -> dict[str, str]:
    """Return the names of the runs' directories in a study, by identity; the first of several by name."""
    names = sorted((path.name for path in study.glob("*-*")), reverse=True)
    return {name.rpartition("-")[2]: name for name in names}


def recorded_settings(config: Config, start: Start | None) -> dict[str, Any]:
    """Return the settings that decide a run's result, with the arm it begins from, for the record and W&B."""
    settings = config.result_settings()
    return settings if start is None else {**settings, FROM: start.arm}


def _check_objective(config: Config, trained: bool) -> None:
    """Raise ConfigError if the run does not have the text, length or training that its objective needs."""
    objective = build_objective(config.objective)
    if objective.reads_text == (config.data.get("source") == "none"):
        choice = "objective=causal or masked, or task=NAME" if objective.reads_text else "data=none"
        raise ConfigError(
            f"objective.kind={config.objective['kind']} with data={config.data['source']}: choose {choice}"
        )
    if config.context_length < objective.needs():
        raise ConfigError(
            f"context_length={config.context_length} is too short for the examples of objective.kind="
            f"{config.objective['kind']}: choose context_length={objective.needs()} or more"
        )
    packed = config.data.get("windows") == "packed"  # then parts of windows are separate rows
    if packed and (not objective.causal or config.probe.share is not None):
        raise ConfigError(
            "data.windows=packed needs a causal objective without probe.share: choose data.windows=within"
        )
    if packed and not trained and config.trainer.compile is True:
        raise ConfigError(
            "data.windows=packed varies the number of rows from step to step, and trainer.compile=true would "
            "compile for each: choose trainer.compile=false or data.windows=within"
        )


def resolve(config: Config, local: bool = True) -> Config:
    """Return the configuration with every `auto` replaced by its value on this machine.

    If not `local`, the run is for other machines, and `auto` means GPUs with bfloat16 whatever this machine
    has, so that the same command gives the same run everywhere. Raise ConfigError if a setting cannot work.
    """
    trainer, evaluate = config.trainer, config.evaluate
    accelerator = trainer.accelerator
    cuda = not local or (accelerator != "cpu" and cuda_available())
    if accelerator == "auto":
        accelerator = "cuda" if cuda else "cpu"
    elif accelerator == "cuda" and not cuda:
        raise ConfigError(
            "trainer.accelerator=cuda, but PyTorch sees no CUDA device: choose trainer.accelerator=cpu"
        )
    precision = trainer.precision
    if precision == "auto":
        precision = "bfloat16" if accelerator == "cuda" and (not local or bfloat16_available()) else "float32"
    elif precision == "bfloat16" and local:
        supported = bfloat16_available() if accelerator == "cuda" else cpu_has_bfloat16()
        if not supported:
            device = "GPU" if accelerator == "cuda" else "CPU"
            raise ConfigError(
                f"trainer.precision=bfloat16, but this machine's {device} has no instructions for it: "
                "choose trainer.precision=float32"
            )
    compiled = trainer.compile
    if compiled == "auto":
        long, packed = trainer.max_steps >= COMPILED_STEPS, config.data.get("windows") == "packed"
        compiled = accelerator == "cuda" and long and trainer.strategy == "ddp" and not packed
    longest = LONGEST[accelerator] if evaluate.longest == "auto" else evaluate.longest
    factor = evaluate.rescale_factor
    if factor == "auto" and FACTOR_METHODS & set(evaluate.rescale):
        factor = float(longest)
    rescale = [method for method in RESCALINGS if method in evaluate.rescale]  # in a fixed order
    return config.model_copy(
        update={
            "trainer": trainer.model_copy(
                update={"accelerator": accelerator, "precision": precision, "compile": compiled}
            ),
            "evaluate": evaluate.model_copy(
                update={"longest": longest, "rescale_factor": factor, "rescale": rescale}
            ),
        }
    )
