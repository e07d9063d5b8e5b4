"""A trained model evaluated again, by itself: a record of its own, under a name of what decides it.

evaluations/<run>-<hash>/    manifest.json, extrapolation.csv, position.csv and what else a run is measured
                             for; sealed as a run's record is
"""

import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from poslab.config.overrides import logger, with_overrides
from poslab.config.request import Config, Request
from poslab.config.schema import ConfigError, check
from poslab.config.text import plain
from poslab.record.files import DamagedError
from poslab.record.locks import holding, run_lock
from poslab.record.manifest import damaged_files, read_manifest
from poslab.record.schema import FINAL
from poslab.record.writer import RunRecord
from poslab.report.render.terminal import evaluation_table, print_table
from poslab.study.display.run_bar import RunDisplay
from poslab.study.run.make import first_facts
from poslab.study.run.measure import measure
from poslab.study.run.plan import Job, plan, title
from poslab.study.run.stopping import Stopped, Stopper
from poslab.tracking.send.evaluation import mirror
from poslab.training.checkpoints import TrainedModel, read_trained_model

SAME = ("extrapolation.csv", "position.csv", "rescaled.csv", "rescaled_position.csv", "probe.csv")


@dataclass(frozen=True)
class Evaluation:
    """A trained model, and what it is evaluated for."""

    trained: TrainedModel
    before: Config  # that it was trained with
    job: Job  # whose directory is the evaluation's

    @property
    def unchanged(self) -> bool:
        """Whether configuration and text are those of the run; the code may be another."""
        told = (self.trained.manifest.get("data") or {}).get("fingerprint")
        return not self.changed() and self.job.corpus.fingerprint == told

    def changed(self) -> dict[str, tuple[Any, Any]]:
        """By dotted key, each setting that is not the run's: what that was, and what it is."""
        then, now = (dict(_flat(config.result_settings())) for config in (self.before, self.job.config))
        keys = dict.fromkeys([*then, *now])
        return {key: (then.get(key), now.get(key)) for key in keys if then.get(key) != now.get(key)}


def evaluate_again(
    directory: Path, wanted: Mapping[str, Any], conf: Path, evaluations: Path, artifact: str | None = None
) -> int:
    """Evaluate the model in a run directory as its run did but for what is `wanted`, and show it.

    `artifact` is the model's name in W&B where it comes from there. The exit status. Raises ConfigError,
    TakenError, and Stopped where the command is.
    """
    options = logger(wanted, conf)
    evaluation = _planned(read_trained_model(directory), wanted, conf, evaluations)
    where = evaluation.job.directory
    with Stopper().installed() as stopper, holding(run_lock(where)):
        manifest = _made(where)
        if manifest is None:
            manifest = _make(evaluation, stopper)
        else:
            print(f"{where} is made already and is shown again", file=sys.stderr)
        if manifest["status"] != "done":
            print(f"evaluate.py: not done: {manifest['reason']} (see {where})", file=sys.stderr)
            return 1
        place = mirror(options, where, manifest, artifact)
        if place is not None:
            RunRecord(where, manifest).update(wandb=place)
    _show(where, manifest)
    if place is not None:
        later = f"W&B ran offline; after `wandb login`: wandb sync {where / str(place['path'])}"
        print(f"W&B: {place['url']}" if place["mode"] == "online" else later)
    return 0


def _planned(trained: TrainedModel, wanted: Mapping[str, Any], conf: Path, evaluations: Path) -> Evaluation:
    manifest = trained.manifest
    if manifest.get("status") != "done":
        raise ConfigError(f"the run is {plain(manifest.get('status'), 30)}, not done: train it to its end")
    names = {key: str(manifest.get(key)) for key in ("run", "study", "pos", "attention")}
    if Path(names["run"]).name != names["run"] or names["run"].startswith("."):
        raise DamagedError(f"manifest.json: run={names['run'][:60]!r} is no name of a directory")
    settings = {**trained.settings, "study": names["study"]}
    before = check(Config, settings, "")
    config = check(Config, with_overrides(settings, wanted, conf), "")
    _check_text(before, config, wanted)
    job = plan(Request(config, names["pos"], names["attention"]), evaluations)
    told = (manifest.get("data") or {}).get("fingerprint")
    if job.corpus.fingerprint != told and config.data["vocabulary"] != "bytes":
        raise ConfigError(
            f"the model's {trained.vocabulary:,} tokens were made from its own text (fingerprint "
            f"{plain(told, 12)}), and {job.corpus.name} here ({job.corpus.fingerprint[:12]}) has others"
        )
    decided = json.dumps([job.identity, manifest["files"][FINAL]])
    digest = hashlib.sha256(decided.encode()).hexdigest()[:12]
    return Evaluation(trained, before, replace(job, directory=evaluations / f"{names['run']}-{digest}"))


def _check_text(before: Config, config: Config, wanted: Mapping[str, Any]) -> None:
    """Raise ConfigError where the text cannot be the model's, before it is read."""
    if config.data.get("vocabulary") != before.data["vocabulary"] or (
        before.data["vocabulary"] != "bytes" and "data" in wanted
    ):
        raise ConfigError(
            f"data={wanted['data']}: the model's vocabulary is not bytes but made from its own text, the "
            "only one that it can be evaluated on"
        )
    path = None if wanted.keys() & {"data", "data.path"} else config.data.get("path")
    if config.data.get("source") == "text" and path is not None and not Path(path).exists():
        raise ConfigError(f"the text {plain(path)} of the run is not in this directory: say data.path=FILE")


def _made(directory: Path) -> dict[str, Any] | None:
    """The manifest of an evaluation that is as it was written, or None."""
    try:
        manifest = read_manifest(directory)
    except DamagedError as error:
        print(f"evaluate.py: {error} and is made again", file=sys.stderr)
        return None
    if manifest is None or manifest.get("status") != "done":
        return None
    damaged = damaged_files(directory, manifest)
    for name in damaged:
        print(f"evaluate.py: {directory / name} is damaged and is made again", file=sys.stderr)
    return None if damaged else manifest


def _make(evaluation: Evaluation, stopper: Stopper) -> dict[str, Any]:
    """Measure the model and record it; the manifest, with a reason where it did not come to its end."""
    trained, job = evaluation.trained, evaluation.job
    gpt = trained.gpt(job.config)
    # Sums are split by threads: with another number the last bits would differ.
    torch.set_num_threads(trained.threads)
    record = RunRecord(job.directory)
    record.update(
        **{
            **first_facts(job),
            "run": trained.manifest["run"],
            "evaluation": job.directory.name,
            "trained_identity": trained.manifest.get("identity"),
            "checkpoint": trained.manifest["files"][FINAL],
            "changed": {key: list(values) for key, values in evaluation.changed().items()},
            "parameters": gpt.parameter_count(),
            "max_length": gpt.scheme.max_length,
            "wandb": None,
        }
    )
    record.update(notes=_notes(trained.manifest, record.manifest))
    try:
        measure(job, gpt, record, RunDisplay(title(job.request)), stopper)
    except Stopped as stop:
        record.update(status="interrupted", reason=str(stop))
        raise
    except Exception as error:
        line = (str(error).splitlines() or ["no message"])[0]
        record.update(status="failed", reason=f"{type(error).__name__}: {line}")
        return record.manifest
    notes = [*record.manifest["notes"], *_against_its_own(evaluation, record)]
    finished = datetime.now(UTC).isoformat(timespec="seconds")
    record.end("done", None, notes=notes, kernel=gpt.kernel, finished=finished)
    return record.manifest


def _notes(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """A line for each way in which an evaluation's numbers are not those of the run, from both manifests."""
    found = []
    one, other = then.get("data") or {}, now["data"]
    if one.get("fingerprint") != other["fingerprint"]:
        found.append(
            f"evaluated on {_text(other)}, not on the text it was trained on, {_text(one)}: the part that is "
            "scored here may be among what it was trained on"
        )
    if any(then.get(key) != now[key] for key in ("code", "code_parts", "code_evaluation")):
        found.append("made by other code than the run: a change of the code may have changed the numbers")
    was, here = ([each.get("device"), (each.get("versions") or {}).get("torch")] for each in (then, now))
    for key, old, new in zip(("device", "PyTorch"), was, here, strict=True):
        if old != new:
            found.append(f"{key} {new}, and {old} when the run was made: the last digits may differ")
    return [plain(line, 400) for line in found]


def _text(data: Mapping[str, Any]) -> str:
    return f"{plain(data.get('name'), 60)} (fingerprint {str(data.get('fingerprint'))[:12]})"


def _against_its_own(evaluation: Evaluation, record: RunRecord) -> list[str]:
    """Where nothing is changed: whether the numbers are those that the run recorded when it was made."""
    if not evaluation.unchanged:
        return []
    own = evaluation.trained.manifest["files"]
    differing = [name for name in SAME if own.get(name) != record.files.get(name)]
    if not differing:
        return ["the same numbers, to the last digit, as the run's own record"]
    return [f"not the same numbers as in the run's own {', '.join(differing)}"]


def _show(directory: Path, manifest: Mapping[str, Any]) -> None:
    print_table(evaluation_table(directory, manifest))
    print(f"{plain(manifest['run'])} of study {plain(manifest['study'])}, on {_text(manifest['data'])}")
    for key, (was, now) in manifest["changed"].items():
        print(f"{key}: {_value(now)} instead of {_value(was)}")
    for note in [*manifest["notes"], *filter(None, [manifest.get("recalibration")])]:
        print(f"note: {plain(note, 400)}")
    print(f"record: {directory}")


def _value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{','.join(map(_value, value))}]"
    return f"{value:g}" if isinstance(value, float) else plain(value, 60)


def _flat(section: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in section.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
