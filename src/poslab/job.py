"""One run, from a configuration to its record.

`plan` checks everything and names the run without training it; `run` trains, evaluates and records it.
As a program (`python -m poslab.job`) it does the one run that its standard input describes: so the launcher
starts every run in a fresh process.
"""

import fcntl
import io
import json
import platform
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch

from poslab.config import FACTOR_METHODS, Config, ConfigError, Request, check
from poslab.data import Corpus, check_lengths, prepare
from poslab.evaluate import Extrapolation, changes_rotation, evaluate, longest_length, rescalings
from poslab.identity import Code, code_fingerprints, describe_versions, run_identity, run_name
from poslab.model import GPT, build, build_parts
from poslab.record import FORMAT, RunRecord, read_manifest, write_atomic
from poslab.rescaling import METHODS
from poslab.terminal import RunDisplay
from poslab.tracking import NoTracker, Tracker, by_length, open_tracker, summary

LONGEST = {"cpu": 8, "cuda": 16}  # what evaluate.longest=auto means


@dataclass(frozen=True)
class Job:
    """A run that can be made: all checked, data prepared, place known."""

    request: Request
    config: Config  # without `auto`
    corpus: Corpus
    code: Code
    identity: str
    directory: Path

    @property
    def title(self) -> str:
        return f"{self.request.pos} / {self.request.attention} / seed {self.config.seed}"

    @property
    def status(self) -> str | None:
        """How the run stands or ended, as its record says; None where there is no record yet."""
        manifest = read_manifest(self.directory)
        return None if manifest is None else str(manifest["status"])

    @property
    def settled(self) -> bool:
        """Whether making it again would give the same again: done, or diverged."""
        return self.status in ("done", "diverged")


def plan(request: Request, runs: Path) -> Job:
    """Check the request and prepare its data. Raises ConfigError, with one line, for all that cannot work."""
    config = _spelled_out(resolve(request.config))
    corpus = prepare(config.data)
    check_lengths(corpus, config.context_length, longest_length(config))
    code = code_fingerprints(config)
    identity = run_identity(config, code, corpus.fingerprint)
    study = runs / config.study
    # The same run may have been asked for by another name: pos=rope_500, or pos=rope pos.base=500.
    known = sorted(study.glob(f"*-{identity}"))
    directory = (
        known[0] if known else study / run_name((request.pos, request.attention), config.seed, identity)
    )
    return Job(request, config, corpus, code, identity, directory)


def resolve(config: Config) -> Config:
    """The configuration with every `auto` replaced by what it means on this machine."""
    trainer, evaluate = config.trainer, config.evaluate
    accelerator = trainer.accelerator
    if accelerator == "auto":
        accelerator = "cuda" if torch.cuda.is_available() else "cpu"
    elif accelerator == "cuda" and not torch.cuda.is_available():
        raise ConfigError("trainer.accelerator=cuda, but PyTorch sees no CUDA device: use cpu or auto")
    precision = trainer.precision
    if precision == "auto":
        precision = (
            "bfloat16"
            if accelerator == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
            else "float32"
        )
    longest = LONGEST[accelerator] if evaluate.longest == "auto" else evaluate.longest
    factor = evaluate.rescale_factor
    if factor == "auto" and FACTOR_METHODS & set(evaluate.rescale):
        factor = float(longest)
        if factor <= 1:
            raise ConfigError("evaluate.rescale reaches past L, but evaluate.longest=1: choose a longer one")
    rescale = [method for method in ("none", *METHODS) if method in evaluate.rescale]  # in one spelling
    return config.model_copy(
        update={
            "trainer": trainer.model_copy(update={"accelerator": accelerator, "precision": precision}),
            "evaluate": evaluate.model_copy(
                update={"longest": longest, "rescale_factor": factor, "rescale": rescale}
            ),
        }
    )


def _spelled_out(config: Config) -> Config:
    """The configuration with its parts' options checked and in one spelling (500 and 500.0 are one base).

    Whether the parts fit together is so told before any data is read. Raises ConfigError.
    """
    _, scheme, attentions = build_parts(config)
    for rescaling in rescalings(config):
        if not scheme.rescale(rescaling):
            raise ConfigError(
                f"evaluate.rescale={config.evaluate.rescale} is for rotations, and "
                f"pos.scheme={scheme.name} has none: leave it out, or give it a command of its own"
            )
        scheme.rescale(None)
        if not changes_rotation(scheme, rescaling, longest_length(config)):
            raise ConfigError(
                f"evaluate.rescale={rescaling.method} changes nothing for pos.scheme={scheme.name} up to its "
                "longest evaluation: leave it out, or choose a longer evaluate.longest"
            )
    pos = scheme.section()
    attention = {"kind": config.attention["kind"], **attentions[0].options.model_dump()}
    return config.model_copy(update={"pos": pos, "attention": attention})


def run(job: Job, display: RunDisplay) -> dict[str, Any]:
    """Make the run and return its manifest; a run that fails has status failed or diverged and a reason.

    KeyboardInterrupt marks the run as interrupted and goes on up. Raises ConfigError where another process
    is making the same run.
    """
    with _alone(job.directory):
        if job.settled:  # by another command, since this one looked
            return read_manifest(job.directory) or {}
        if job.directory.exists():
            shutil.rmtree(job.directory)  # what an unfinished run left
        return _run(job, display)


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Raises ConfigError while another process makes the same run. The lock ends with its process."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    with (directory.parent / f".{directory.name}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"{directory} is being made by another command") from None
        yield


def _run(job: Job, display: RunDisplay) -> dict[str, Any]:
    # Lightning takes seconds to import: planning, or finding a run made, must not wait for it.
    from poslab.training import DivergedError

    record = RunRecord(job.directory)
    record.update(**_first_facts(job))
    config = {"study": job.config.study, **job.config.deciding()}
    named = {**config, "pos": {"name": job.request.pos, **config["pos"]}}
    tracker: Tracker = NoTracker()
    found = Extrapolation()
    try:
        tracker = open_tracker(job.config.logger, job.directory, job.config.study, job.title, named)
        record.update(wandb=tracker.place)
        found = _train_and_evaluate(job, record, tracker, display)
        outcome: dict[str, Any] = {"status": "done", "reason": None}
    except DivergedError as error:
        outcome = {"status": "diverged", "reason": str(error)}
    except KeyboardInterrupt:
        record.update(status="interrupted", reason="stopped by the user", finished=_now())
        tracker.finish({"status": "interrupted"}, [], exit_code=130)
        raise
    except Exception as error:
        write_atomic(job.directory / "error.txt", traceback.format_exc())
        message = (str(error).splitlines() or ["no message"])[0]
        outcome = {"status": "failed", "reason": f"{type(error).__name__}: {message}"}
    record.update(**outcome, finished=_now())
    lengths = by_length(found.lengths)
    tracker.finish(summary(outcome, lengths), lengths, exit_code=int(outcome["status"] != "done"))
    return record.manifest


def _train_and_evaluate(job: Job, record: RunRecord, tracker: Tracker, display: RunDisplay) -> Extrapolation:
    from poslab.training import DivergedError, train, without_positions

    config, corpus = job.config, job.corpus
    gpt = build(config, corpus.vocabulary)
    record.update(parameters=gpt.parameter_count(), max_length=gpt.scheme.max_length)
    rows: list[Mapping[str, Any]] = []

    def on_row(row: Mapping[str, Any]) -> None:
        rows.append(row)
        record.write_metrics(rows)
        record.update(tokens=row["tokens"], flops=gpt.training_flops(row["tokens"]), seconds=row["seconds"])
        tracker.log(row)

    with display.phase("training", config.trainer.max_steps):
        recorder = train(gpt, config, corpus, on_row, display.step)
    record.update(kernel=gpt.kernel, seconds_validation=recorder.validation_seconds)
    _save(job, gpt)
    started = time.perf_counter()
    with display.phase("evaluating"):
        told = f"lengths up to {longest_length(config)}"
        found = evaluate(gpt, config, corpus, partial(display.share, told))
    record.write_extrapolation(found.lengths)
    record.write_position(found.positions)
    seconds = time.perf_counter() - started
    rescaled = {}
    for rescaling in rescalings(config):
        model = gpt
        if rescaling.method == "drop" and config.evaluate.recalibration_steps:
            try:
                with display.phase("recalibrating", config.evaluate.recalibration_steps):
                    model = without_positions(gpt, config, corpus, display.step)
            except DivergedError as error:  # its line stays without numbers; the run itself is sound
                record.update(recalibration=str(error))
                continue
        started = time.perf_counter()
        with display.phase(f"evaluating {rescaling.method}"):
            show = partial(display.share, f"{rescaling.method}, {told}")
            rescaled[rescaling.method] = evaluate(model, config, corpus, show, rescaling)
        seconds += time.perf_counter() - started
    if rescalings(config):
        record.write_rescaled(
            [{"rescale": name, **row} for name, each in rescaled.items() for row in each.lengths],
            [{"rescale": name, **row} for name, each in rescaled.items() for row in each.positions],
        )
    record.update(seconds_evaluation=seconds)
    return found


def _save(job: Job, gpt: GPT) -> None:
    """Weights and plain values only, so that loading with weights_only=True is enough."""
    buffer = io.BytesIO()
    state = {name: tensor.cpu() for name, tensor in gpt.state_dict().items()}
    torch.save({"format": FORMAT, "weights": state, "config": job.config.model_dump(mode="json")}, buffer)
    write_atomic(job.directory / "checkpoint.pt", buffer.getvalue())


def load(directory: Path) -> GPT:
    """The trained model of a run directory, in evaluation mode on the CPU."""
    saved = torch.load(directory / "checkpoint.pt", map_location="cpu", weights_only=True)
    config = check(Config, saved["config"], "")
    gpt = build(config, saved["weights"]["embedding.weight"].shape[0])
    gpt.load_state_dict(saved["weights"])
    return gpt.eval()


def _first_facts(job: Job) -> dict[str, Any]:
    config = job.config
    cuda = config.trainer.accelerator == "cuda"
    return {
        "format": FORMAT,
        "study": config.study,
        "run": job.directory.name,
        "identity": job.identity,
        "status": "running",
        "reason": None,
        "pos": job.request.pos,
        "attention": job.request.attention,
        "seed": config.seed,
        "config": config.deciding(),
        "code": job.code.shared,
        "code_parts": job.code.parts,
        "data": job.corpus.describe(),
        "versions": describe_versions(),
        "device": torch.cuda.get_device_name() if cuda else f"cpu ({platform.machine()})",
        "threads": torch.get_num_threads(),
        "precision": config.trainer.precision,
        "started": _now(),
        "finished": None,
    }


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def as_json(request: Request) -> str:
    return json.dumps(
        {
            "config": request.config.model_dump(mode="json"),
            "pos": request.pos,
            "attention": request.attention,
        }
    )


def from_json(text: str) -> Request:
    value = json.loads(text)
    return Request(check(Config, value["config"], ""), value["pos"], value["attention"])


def main() -> int:
    """Make the run that standard input describes; arguments: the runs directory, a title, the identity."""
    runs, title, identity = sys.argv[1:]
    # Whoever stops the study asks with SIGTERM: a job in the background may have been told to ignore SIGINT.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        job = plan(from_json(sys.stdin.read()), Path(runs))
        if job.identity != identity:
            raise ConfigError("code or data changed since the study began: give the command again")
        manifest = run(job, RunDisplay(title))
    except ConfigError as error:
        print(f"poslab: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return int(manifest["status"] != "done")


if __name__ == "__main__":
    sys.exit(main())
