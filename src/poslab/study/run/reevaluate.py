"""Evaluate a trained model again. The evaluation gets a separate record, with the same tables as a run's.

evaluations/<run>-<hash>/    manifest.json, extrapolation.csv, position.csv and so on; the hash is of the
                             settings, the code, the text and the weights
"""

import hashlib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Any

from poslab.config.checking import check
from poslab.config.errors import FAILED, UserError
from poslab.config.installation import title as title_of
from poslab.config.option_files import Conf
from poslab.config.overrides import logger, with_overrides
from poslab.config.request import Config, Request, flat_settings, whole_numbers
from poslab.config.schema import SHARING, ConfigError, is_tokenizer_file
from poslab.config.text import is_file_name, plain
from poslab.data import tokenizer_file
from poslab.loggers.send.mirror import mirror_evaluation
from poslab.loggers.wandb import wandb_options
from poslab.record.facts import Manifest, recipe
from poslab.record.locks import file_lock, run_lock
from poslab.record.manifest import damaged_files
from poslab.record.measures import mean_bits
from poslab.record.reader import Run, load_evaluation
from poslab.record.schema import MANIFEST, TOKENIZER
from poslab.record.seal import DamagedError
from poslab.record.writer import RunRecord, now
from poslab.report.formatting import multiple, number
from poslab.report.render.terminal import evaluation_table, print_table, terminal_width
from poslab.study.display.run_bar import RunDisplay
from poslab.study.launch.devices import torch_threads
from poslab.study.run.facts import gpu_facts
from poslab.study.run.failures import failure_reason
from poslab.study.run.identity import check_imported
from poslab.study.run.job import Job
from poslab.study.run.measure import measure
from poslab.study.run.plan import plan
from poslab.study.run.stopping import Stopped, Stopper
from poslab.training.trained import TrainedModel, read_trained_model


@dataclass(frozen=True)
class Evaluated:
    """A finished evaluation, with its place in W&B and whether it was finished before this command."""

    directory: Path
    manifest: Manifest
    finished_before: bool
    mirrored: Mapping[str, Any] | None


class EvaluationFailedError(UserError):
    """An evaluation that ended with an error, which is the cause of this one and is in the record."""

    status = FAILED


def evaluate_again(
    directory: Path,
    overrides: Mapping[str, Any],
    conf: Conf,
    evaluations: Path,
    stopper: Stopper,
    artifact: str | None = None,
) -> Evaluated:
    """Evaluate the model in a run directory with the run's settings and the `overrides`.

    `artifact` is the model's name in W&B, if it was downloaded. The evaluation is sent to W&B if the run was,
    unless `overrides` say otherwise. Raise ConfigError, TakenError, EvaluationFailedError and Stopped.
    """
    trained = read_trained_model(directory)
    untracked = artifact is None and trained.manifest.wandb is None
    options = wandb_options(logger(overrides, conf, default="local" if untracked else "wandb"))
    job, changed = _plan(directory, trained, overrides, conf, evaluations)
    folder = job.directory
    # The last bits of a sum depend on the number of threads.
    with stopper.installed(), file_lock(run_lock(folder)), torch_threads(trained.threads):
        finished = _finished(job)
        manifest = finished or _measure(trained, job, changed, stopper)
        mirrored = mirror_evaluation(options, job.config, folder, manifest, artifact)
        if mirrored is not None:
            RunRecord(folder, manifest).update(wandb=mirrored)
    return Evaluated(folder, manifest, finished is not None, mirrored)


def show(evaluated: Evaluated) -> None:
    """Print the losses by length, what was evaluated, how it differs from the run, and the record's path."""
    directory = evaluated.directory
    if evaluated.finished_before:
        print(f"{directory} already has the same evaluation, which is shown", file=sys.stderr)
    _show(directory, evaluated.manifest)
    match evaluated.mirrored:
        case {"mode": "online", "url": url}:
            print(f"W&B: {url}")
        case {"path": path}:
            folder = quote(str(directory / path))
            print(f"W&B is offline; to send the evaluation, run `wandb login`, then: wandb sync {folder}")


def _plan(
    directory: Path, trained: TrainedModel, overrides: Mapping[str, Any], conf: Conf, evaluations: Path
) -> tuple[Job, dict[str, list[Any]]]:
    """Return the job of an evaluation, and for each setting that differs the values of run and evaluation."""
    manifest = trained.manifest
    if manifest.status != "done":
        raise ConfigError(f"the run is {plain(manifest.status, 30)}, not done: train it to its end first")
    if not is_file_name(manifest.run):
        raise DamagedError(f"{MANIFEST}: run={str(manifest.run)[:60]!r} cannot be the name of a directory")
    # Callbacks were only called during training, so their package is not needed here.
    settings = {**trained.settings, "study": str(manifest.study), "callbacks": {}}
    settings["trainer"] = {**settings["trainer"], **SHARING}  # the evaluation runs in one process
    trained_config = check(Config, settings, "")
    requested = with_overrides(settings, overrides, conf)
    # Another text is encoded with the model's own tokens, whatever the option file of the text sets.
    requested["data"]["vocabulary"] = trained_config.data["vocabulary"]
    config = check(Config, whole_numbers(requested), "")
    check_imported(config)
    changes = tuple(f"{key}={value}" for key, value in overrides.items())
    request = Request(config, str(manifest.pos), str(manifest.attention), changes)
    tokenizer = _tokenizer(directory, manifest, config.data["vocabulary"], overrides)
    # With a BPE, the run's own text is already prepared, so it is not read again, for instance from the hub.
    names_text = any(key.partition(".")[0] == "data" for key in overrides)
    prepared = not is_tokenizer_file(config.data["vocabulary"]) and not names_text
    job = plan(request, evaluations, trained=True, tokenizer=None if prepared else tokenizer)
    if manifest.corpus.fingerprint != job.corpus.fingerprint and config.data["vocabulary"] != "bytes":
        if TOKENIZER not in (manifest.files or {}):
            raise ConfigError(
                f"{job.corpus.name} is not the text that the run was trained on, and the record has no "
                f"{TOKENIZER} to encode another text with the same tokens"
            )
        if prepared:
            job = plan(request, evaluations, trained=True, tokenizer=tokenizer)
    identity = json.dumps([job.identity, job.code.evaluation, trained.digest])
    digest = hashlib.sha256(identity.encode()).hexdigest()[:12]
    job = replace(job, directory=evaluations / f"{manifest.run}-{digest}")
    old, new = (flat_settings(config.result_settings()) for config in (trained_config, job.config))
    changed = {
        key: [old.get(key), new.get(key)]
        for key in dict.fromkeys([*old, *new])
        if old.get(key) != new.get(key)
    }
    return job, changed


def _tokenizer(
    directory: Path, manifest: Manifest, vocabulary: Any, overrides: Mapping[str, Any]
) -> Path | None:
    """Return the tokenizer file that encodes any text with the model's tokens; None if there is no file.

    It is the file in the record, or the same file elsewhere. Raise ConfigError and DamagedError.
    """
    recorded, of_file = (manifest.files or {}).get(TOKENIZER), is_tokenizer_file(vocabulary)
    file = overrides.get("data.vocabulary")
    if file is not None:
        if not of_file:
            kind = "bytes" if vocabulary == "bytes" else f"its own BPE of {vocabulary:,} tokens"
            raise ConfigError(f"data.vocabulary={file}: the model reads {kind}: leave data.vocabulary out")
        if recorded is not None and tokenizer_file.digest(Path(file)) != recorded:
            raise ConfigError(f"data.vocabulary={file} is not the tokenizer that the model was trained with")
        return Path(file)
    if recorded is None:
        return Path(vocabulary) if of_file else None
    if damaged_files(directory, {TOKENIZER: recorded}):
        state = "damaged" if (directory / TOKENIZER).exists() else "missing"
        remedy = ", or choose data.vocabulary=FILE" if of_file else ""
        raise DamagedError(f"{directory / TOKENIZER} is {state}: repeat the run's command{remedy}")
    return directory / TOKENIZER


def _finished(job: Job) -> Manifest | None:
    """Return the manifest of the evaluation if it is finished and undamaged, else None.

    Raise ConfigError if a newer version of poslab wrote it, since its content would be lost.
    """
    run_status = job.run_status
    if run_status.status == "newer":
        raise ConfigError(f"{job.directory}: {run_status.reason}")
    for line in run_status.damage:
        print(f"{title_of('evaluate')}: {line}; the evaluation is repeated", file=sys.stderr)
    return run_status.manifest if run_status.settled else None


def _measure(trained: TrainedModel, job: Job, changed: Mapping[str, list[Any]], stopper: Stopper) -> Manifest:
    """Evaluate the model, record it, and return the manifest. Raise EvaluationFailedError and Stopped."""
    gpt = trained.gpt(job.config)
    record = RunRecord(job.directory)
    record.update(
        **{
            **job.facts,
            **(gpu_facts() if job.config.trainer.accelerator == "cuda" else {}),
            "status": "running",
            "started": now(),
            "threads": trained.threads,
            "run": trained.manifest.run,
            "evaluation": job.directory.name,
            "trained_identity": trained.manifest.identity,
            "checkpoint": trained.digest,
            "changed": changed,
            "parameters": gpt.parameter_count(),
            "max_length": gpt.scheme.max_length,
            "wandb": None,
        }
    )
    record.update(notes=_notes(trained.manifest, record.manifest))
    try:
        measure(job, gpt, record, RunDisplay(job.request.title), stopper)
    except Stopped as stop:
        record.update(status="interrupted", reason=str(stop))
        raise
    except Exception as error:
        reason = failure_reason(error, trained=True)
        record.update(status="failed", reason=reason)
        raise EvaluationFailedError(f"not done: {reason} (see {job.directory})") from error
    notes = [*(record.manifest.notes or [])]
    if not changed and trained.manifest.corpus.fingerprint == job.corpus.fingerprint:
        notes.append(_compare_with_run(trained.manifest, record))
    record.update(
        status="done", reason=None, files=record.files, notes=notes, kernel=gpt.kernel, finished=now()
    )
    return record.manifest


def _notes(run: Manifest, evaluation: Manifest) -> list[str]:
    """Return a line for each reason why the numbers of the run and of the evaluation may differ."""
    notes = []
    if run.corpus.fingerprint != evaluation.corpus.fingerprint:
        notes.append(
            f"evaluated on {_text(evaluation)}, not on the training text, {_text(run)}: the part that is "
            "scored here may be a part of the training text"
        )
    elif {"evaluate.longest", "evaluate.segments", "evaluate.documents"} & {*(evaluation.changed or {})}:
        notes.append("other parts of the text are scored than in the run: losses differ at every length")
    codes = ((facts.code, facts.code_parts, facts.code_evaluation) for facts in (run, evaluation))
    if len({tuple(map(recipe, fingerprints)) for fingerprints in codes}) > 1:
        notes.append("evaluated by other code than the run, which may have changed the numbers")
    torch_versions = [(facts.versions or {}).get("torch") for facts in (run, evaluation)]
    for key, (old, new) in {"device": (run.device, evaluation.device), "PyTorch": torch_versions}.items():
        if old != new:
            notes.append(f"{key} {new} instead of the run's {old}: the last digits may differ")
    return [plain(line, 400) for line in notes]


def _text(manifest: Manifest) -> str:
    return f"{plain(manifest.corpus.name, 60)} (fingerprint {str(manifest.corpus.fingerprint)[:12]})"


def _compare_with_run(manifest: Manifest, record: RunRecord) -> str:
    """Return a line that says whether the numbers are equal to those in the run's own record."""
    files = manifest.files or {}
    differing = [name for name, digest in record.files.items() if files.get(name, digest) != digest]
    if not differing:
        return "the same numbers, to the last digit, as the run's own record"
    return f"not the same numbers as in the run's own {', '.join(differing)}"


def _show(directory: Path, manifest: Manifest) -> None:
    run = load_evaluation(directory, manifest)
    print_table(evaluation_table(run, terminal_width()))
    if (run.config.get("data") or {}).get("vocabulary") != "bytes" and (bits := _bits(run)):
        print(f"Bits per byte in sliding windows: {bits}")
    print(f"{plain(manifest.run)} of study {plain(manifest.study)}, on {_text(manifest)}")
    for key, (was, is_now) in (manifest.changed or {}).items():
        print(f"{key}: {_value(is_now)} instead of {_value(was)}")
    for note in [*(manifest.notes or []), *filter(None, [manifest.recalibration])]:
        print(f"note: {plain(note, 400)}")
    print(f"record: {directory}")


def _bits(run: Run) -> str:
    """Return bits per byte at each length: unlike nats per token, comparable across texts and tokenizers."""
    lengths = sorted(k for protocol, k in run.segments if protocol == "sliding")
    bits = {k: mean_bits(run.segments["sliding", k].values()) for k in lengths}
    return ", ".join(f"{number(value)} at {multiple(k)}" for k, value in bits.items() if value is not None)


def _value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{','.join(map(_value, value))}]"
    return f"{value:g}" if isinstance(value, float) else plain("null" if value is None else value, 60)
