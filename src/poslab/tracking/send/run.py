"""One run in W&B: its curve while it trains, then its charts, tables, summary, record and artifacts."""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import wandb

from poslab.config.request import LoggerOptions
from poslab.record.manifest import parse_manifest
from poslab.record.reader import Run, load_run
from poslab.record.schema import FINAL, MANIFEST, Manifest
from poslab.tracking import in_wandb_sweep, login
from poslab.tracking.send.card import Card
from poslab.tracking.send.charts import AXES, chart_rows, sheets, summary, training_row
from poslab.tracking.send.offline import identifier, parts, show_in_terminal, written

ONLINE_WAIT = 20  # seconds until a W&B server that does not answer means offline
FINISH_WAIT = 120  # seconds for what is left to send; what is not sent by then stays on disk, to be synced
FLUSH = 2  # seconds between two writes of an offline run's file: what a kill can cost
OBJECTIVE = "objective"  # what a W&B sweep goes by: one number, where the loss has its best and its last
FOLDER = "record"  # among a run's files in W&B


class TrackedRun:
    """A W&B run, online where the user is logged in and the server answers, else offline at once.

    Made and used by one thread. Offline, W&B cannot add to what an earlier process wrote: the whole curve is
    written anew, and what it replaces is removed only once as much of the new one is on disk: a process that
    was killed had told more than the checkpoint that this one goes on from.
    """

    def __init__(
        self,
        options: LoggerOptions,
        card: Card,
        directory: Path,
        number: str,
        manifest: str,
        rows: Iterable[Mapping[str, Any]] = (),
        stop: Callable[[str], None] | None = None,
    ) -> None:
        """`number` is W&B's id of the run, the same whenever the run is opened again.

        `stop` is called, from another thread, when somebody stops the run in W&B.
        """
        self.options = options
        self.directory = directory
        self.replaced = [part for part in parts(directory) if identifier(part) == number]
        self.run, self.place = open_run(options, card, directory, number, stop)
        show_in_terminal(Path(self.run.dir).parent, directory)
        define_axes(self.run)
        self.run.summary.update({"status": "running", "reason": None, "finished": None})
        keep(self.run, MANIFEST, manifest.encode())
        for row in rows:
            self._log_training(row)

    def log(self, row: Mapping[str, Any]) -> None:
        self._log_training(row)
        if self.replaced and written(Path(self.run.dir).parent) >= max(map(written, self.replaced)):
            self._remove_replaced()

    def finish(self, manifest: str, exit_code: int) -> None:
        facts = parse_manifest(manifest.encode())
        keep(self.run, MANIFEST, manifest.encode())
        for name in facts.tables:
            keep(self.run, name, (self.directory / name).read_bytes())
        run = replace(load_run(self._folder), name=self.directory.name, study=str(facts.study))
        try:
            log_charts(self.run, run, int(run.config["trainer"]["max_steps"]) + 1)
            self.run.summary.update(summary(run))
            if run.status == "done":
                self._log_artifacts(facts)
        finally:
            self.run.finish(exit_code=exit_code)
        self._remove_replaced()

    def _log_training(self, row: Mapping[str, Any]) -> None:
        shown = training_row(row)
        if in_wandb_sweep():
            shown[OBJECTIVE] = shown["validation/loss"]
        _log(self.run, shown, int(row["step"]))

    @property
    def _folder(self) -> Path:
        return Path(self.run.dir) / FOLDER

    def _log_artifacts(self, manifest: Manifest) -> None:
        about = manifest.model_dump(include={"study", "run", "identity", "pos", "attention", "seed"})
        data = manifest.data.as_json() if manifest.data else {}
        kind = (manifest.config or {})["data"]["source"]
        source = wandb.Artifact(f"data-{kind}", "dataset", metadata=dict(data))
        with source.new_file("data.json") as facts_of_text:
            json.dump(data, facts_of_text, indent=2, sort_keys=True)
        if self.place["mode"] == "online":
            self.run.use_artifact(source)
        else:  # W&B lets no run use an artifact offline
            self.run.log_artifact(source)
        name = artifact_name(self.directory.name)
        tables = wandb.Artifact(f"evaluation-{name}", "evaluation", metadata=about)
        for file in manifest.tables:
            _add(tables, self._folder / file)
        _add(tables, self._folder / MANIFEST)
        self.run.log_artifact(tables)
        if self.options.checkpoints:
            weights = wandb.Artifact(f"checkpoint-{name}", "model", metadata=about)
            _add(weights, self.directory / FINAL)
            _add(weights, self._folder / MANIFEST)
            self.run.log_artifact(weights)

    def _remove_replaced(self) -> None:
        for left in self.replaced:
            shutil.rmtree(left, ignore_errors=True)
        self.replaced = []


def open_run(
    options: LoggerOptions,
    card: Card,
    directory: Path,
    number: str,
    stop: Callable[[str], None] | None = None,
) -> tuple[Any, dict[str, Any]]:
    """A W&B run, and how to find it again; offline where the server does not answer or refuses."""
    os.environ.setdefault("WANDB_SILENT", "true")  # else it says how it has logged in
    mode, because = login.mode()
    arguments: dict[str, Any] = {
        "project": options.project,
        "entity": options.entity,
        "dir": directory,
        "id": number,
        "resume": "allow",
        "group": card.group,
        "job_type": card.job_type,
        "name": card.name,
        "tags": card.tags,
        "notes": card.notes,
        "config": dict(card.config),
    }
    try:
        run = wandb.init(**arguments, mode=mode, settings=_settings(stop))  # type: ignore[arg-type]
    except wandb.errors.Error as error:
        if mode not in ("online", None):
            raise
        because = " ".join(str(error).split())[:200]
        wandb.teardown()  # it still has a run of this id
        run = wandb.init(**arguments, mode="offline", settings=_settings(stop))
    return run, _place(run, options, directory, because)


def _place(run: Any, options: LoggerOptions, directory: Path, because: str | None) -> dict[str, Any]:
    """How to find the run again, for a manifest: no path of the machine."""
    place: dict[str, Any] = {"id": run.id, "mode": "offline" if run.offline else "online"}
    path = Path(run.dir).parent.resolve().relative_to(directory.resolve()) if run.offline else None
    place |= {"url": None if run.offline else run.url, "path": None if path is None else str(path)}
    return {**place, **login.requested_place(options), **({"because": because} if because else {})}


def define_axes(run: Any) -> None:
    """Curves over tokens, with the best validation loss; every other chart over an x axis of its own."""
    run.define_metric("tokens", hidden=True)
    for name in ("train/*", "validation/*", "optimizer/*", "cost/*"):
        run.define_metric(name, step_metric="tokens")
    run.define_metric("validation/loss", step_metric="tokens", summary="min,last")
    run.define_metric("validation/bits_per_byte", step_metric="tokens", summary="min,last")
    for family, axis in AXES.items():  # whose last point is no summary of anything
        run.define_metric(axis, hidden=True, summary="none")
        run.define_metric(family, step_metric=axis, summary="none")


def artifact_name(name: str) -> str:
    """A run's name as W&B takes it for an artifact, with a word before it."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)[-110:]


def _add(artifact: wandb.Artifact, path: Path) -> None:
    """As it lies there: W&B would copy it into the user's home."""
    artifact.add_file(str(path), policy="immutable", skip_cache=True)


def log_charts(opened: Any, run: Run, step: int) -> None:
    """The charts and tables of a record, from `step` on; what the server has of them already is left out."""
    rows: list[dict[str, Any]] = [dict(row) for row in chart_rows(run)]
    tables = {
        f"tables/{name}": wandb.Table(columns=list(sheet.columns), data=[list(row) for row in sheet.rows])
        for name, sheet in sheets(run).items()
    }
    for row in [*rows, tables] if tables else rows:
        _log(opened, row, step)
        step += 1


def _log(opened: Any, row: Mapping[str, Any], step: int) -> None:
    if step >= opened.starting_step:  # else the server has it from before an interruption
        # Committed at once: W&B would hold it back until the next one, and a crash would lose it.
        opened.log(dict(row), step=step, commit=True)


def keep(opened: Any, name: str, content: bytes) -> None:
    """A file of the record among the run's, where W&B takes it from, offline too, wherever that is moved."""
    path = Path(opened.dir) / FOLDER / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    opened.save(path, base_path=opened.dir, policy="now")


@contextmanager
def staged_beside(folder: Path) -> Iterator[None]:
    """W&B stages what it sends below `folder`, unless the user has said where; else in the user's home."""
    before = os.environ.get("WANDB_DATA_DIR")
    os.environ.setdefault("WANDB_DATA_DIR", str(folder / "wandb"))
    try:
        yield
    finally:
        if before is None:
            del os.environ["WANDB_DATA_DIR"]


def _settings(stop: Callable[[str], None] | None) -> wandb.Settings:
    return wandb.Settings(
        silent=True,
        console="off",
        init_timeout=ONLINE_WAIT,
        save_code=False,
        finish_timeout=FINISH_WAIT,
        finish_timeout_raises=True,  # else nobody would know what is missing
        host="",
        program="train.py",  # not its path
        disable_git=True,  # the address of a repository says who and where
        x_disable_meta=True,  # no host name, no user, no files of the working directory
        x_disable_stats=True,
        x_transaction_log_flush_interval=FLUSH,
        stop_fn=lambda: stop("W&B") if stop else None,
    )
