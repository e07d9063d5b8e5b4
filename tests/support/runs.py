"""Requests for short runs, runs in this process, and comparisons of two runs."""

import copy
import shutil
import signal
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from pytorch_lightning import Callback

from poslab import compose
from poslab.config.checking import check
from poslab.config.request import Config, Request
from poslab.data.cache import prepare
from poslab.data.directories import planning_directory
from poslab.model.gpt import GPT, build
from poslab.record.facts import Manifest
from poslab.record.manifest import read_manifest
from poslab.study.display.run_bar import RunDisplay
from poslab.study.run.execute import run
from poslab.study.run.job import Job
from poslab.study.run.plan import plan, resolve
from poslab.study.run.stopping import Stopped, Stopper
from poslab.training.loop import train
from support.checkpoints import from_bytes, to_bytes
from support.commands import read, tiny
from support.models import ATTENTIONS, POSITIONS


def own_cache(folder: Path) -> Path:
    """Prepare a separate cache with the known fingerprints of the code, which take a second to compute."""
    known = planning_directory() / "sources.json"
    if known.exists():
        (folder / "planning").mkdir(parents=True)
        shutil.copy(known, folder / "planning")
    return folder


class Told:
    """An observer that stores the reports of training: rows, (step, loss), and the states at steps `keep`."""

    def __init__(self, keep: Collection[int] = ()) -> None:
        self.rows: list[Any] = []
        self.steps: list[tuple[int, float]] = []
        self.keep = keep
        self.states: dict[int, Any] = {}
        self.ended: Any = None

    def started(self) -> None:
        pass

    def row(self, row: Any) -> None:
        self.rows.append(row)

    def step(self, step: int, loss: Any, tokens_per_second: float) -> None:
        self.steps.append((step, loss()))

    def checkpoint_due(self, step: int) -> bool:
        return step in self.keep

    def checkpoint(self, step: int, state: Any) -> None:
        self.states[step] = from_bytes(to_bytes(state))  # as on disk, since training changes its tensors


def trained(
    wanted: Request, state: Any = None, keep: Collection[int] = (), callbacks: Sequence[Callback] = ()
) -> tuple[GPT, Told]:
    """Train, resuming from `state` if there is one; return the model and its observer."""
    config = resolve(wanted.config)
    corpus = prepare(config.data)
    gpt, told = build(config, corpus.vocabulary), Told(keep)
    told.ended = train(gpt, config, corpus, told, copy.deepcopy(state), callbacks)
    return gpt, told


def make(wanted: Request, runs: Path) -> Manifest:
    """Run a request in this process; return its manifest."""
    return run(plan(wanted, runs), RunDisplay("made", quiet=True), Stopper())


class StopsAt(RunDisplay):
    """Raises SIGTERM at a step."""

    def __init__(self, step: int) -> None:
        super().__init__("stopped", quiet=True)
        self.at = step

    def step(self, step: int, loss: Any, tokens_per_second: float) -> None:
        if step == self.at:
            signal.raise_signal(signal.SIGTERM)


@cache
def _composed() -> dict[str, Any]:
    """Return the settings of a short run on the copy task, as composed for a command."""
    settings = tiny(
        model__layers=2,
        trainer__max_steps=20,
        trainer__batch_size=8,
        trainer__warmup_steps=5,
        trainer__learning_rate=1e-2,
        evaluate__validations=5,
        evaluate__validation_windows=4,
        evaluate__longest=4,
        evaluate__sliding_windows=10,
        logger="local",
    )
    return compose(*settings).config.model_dump(mode="json")


def request(study: str = "test", **changes: Any) -> Request:
    """Return a checked request for a short run on the copy task; `changes` as `a__b` for a.b."""
    plain = {**_composed(), "study": study}
    # More validations than steps are refused.
    steps = changes.get("trainer__max_steps", 20)
    if isinstance(steps, int) and steps >= 1:
        plain["evaluate"] = {**plain["evaluate"], "validations": min(5, steps)}
    for key, value in changes.items():
        *path, last = key.split("__")
        section = plain
        for name in path:
            section[name] = dict(section[name])
            section = section[name]
        section[last] = value
    return Request(check(Config, plain, ""), "rope", "flash")


INLINE = {"name": "inline", "runs_per_gpu": 1, "cores_per_run": 1, "restarts": 0}


def inline(folder: Path, pos: str = "rope", attention: str = "flash", **changes: Any) -> Request:
    """Return a request that `run_study` runs in this process; runs and reports are in `folder`."""
    parts = {"pos": POSITIONS[pos], "attention": ATTENTIONS[attention], "launcher": INLINE}
    places = {"runs": str(folder / "runs"), "reports": str(folder / "reports")}
    study = changes.pop("study", "test")
    return replace(request(study, **{**parts, **places, **changes}), pos=pos, attention=attention)


TRACKED = {"name": "wandb", "project": "poslab", "checkpoints": True}


def tracked_request(pos: str = "rope", logger: Any = TRACKED, **changes: Any) -> Request:
    """Return a request for six steps with five validations, logged to W&B."""
    changes = {"trainer__max_steps": 6, "trainer__warmup_steps": 2, **changes}
    return replace(request("shown", pos=POSITIONS[pos], logger=logger, **changes), pos=pos)


def stopped(job: Job, display: RunDisplay | None = None, stopper: Stopper | None = None) -> Job:
    """Run a job that is stopped by a signal."""
    with pytest.raises(Stopped), (stopper or Stopper()).installed() as listening:
        run(job, display or RunDisplay("made", quiet=True), listening)
    return job


def stopped_at(step: int, wanted: Request, runs: Path) -> Job:
    return stopped(plan(wanted, runs), StopsAt(step))


CLOCK = ("second", "started", "finished")  # parts of the names of columns that depend on the machine's speed


def assert_equal_results(one: Path, other: Path) -> None:
    """Compare weights, every table except its times, and the digest of the batches."""
    manifests = [read_manifest(directory) for directory in (one, other)]
    assert [manifest.status for manifest in manifests] == ["done", "done"]
    assert weights_digest(one) == weights_digest(other)
    tables = sorted(path.name for path in one.glob("*.csv"))
    assert {"metrics.csv"} < {*tables}
    for name in tables:
        assert without_clock(one / name) == without_clock(other / name), name
    assert manifests[0].batches == manifests[1].batches
    assert not (other / "checkpoints").exists()


def weights_digest(directory: Path) -> str:
    saved = from_bytes((directory / "checkpoint.pt").read_bytes())["weights"]
    return sha256(b"".join(tensor.numpy().tobytes() for tensor in saved.values())).hexdigest()


def validation_losses(table: Path) -> dict[int, float]:
    """Return the validation loss by step in metrics.csv."""
    return {
        int(row["step"]): float(row["validation_nll"]) / float(row["validation_tokens"])
        for row in read(table)
    }


def without_clock(path: Path) -> list[dict[str, str]]:
    return [
        {key: value for key, value in row.items() if not any(word in key for word in CLOCK)}
        for row in read(path)
    ]
