"""One run in W&B: its curve during training, then its charts, tables, summary, record and artifacts."""

import atexit
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import wandb

from poslab.config.text import one_line, visible, without_paths, without_secrets
from poslab.loggers import OpenedRun
from poslab.loggers.send import login
from poslab.loggers.send.card import Card, artifact_name, as_sent
from poslab.loggers.send.charts import axes, chart_rows, sheets, summary, training_row
from poslab.loggers.send.offline import identifier, offline_folders, run_id, show_in_terminal, written
from poslab.loggers.wandb import WandbOptions
from poslab.record.archive import published_file
from poslab.record.facts import Manifest
from poslab.record.manifest import parse_manifest
from poslab.record.reader import Run, load_evaluation
from poslab.record.schema import FINAL, LOG, MANIFEST, TOKENIZER
from poslab.record.seal import sealed

ONLINE_SECONDS = 20  # the time W&B's server has to answer before a run is offline
FINISH_SECONDS = 120  # the time to send the rest; unsent data stays on disk, for `wandb sync`
FLUSH_SECONDS = 2  # between two writes of an offline run's file: a kill can lose this much
OBJECTIVE = "objective"  # the metric of a W&B sweep: one number, unlike validation/loss (best and last)
HERE = Path("/proc/self/cwd")  # a process's working directory without its real path, on Linux
CONSOLE = "output.log"  # W&B's name for a run's log
FOLDER = "record"  # the record's folder among a run's files in W&B
SETTINGS: dict[str, Any] = {
    "silent": True,
    "reinit": "create_new",  # keeps a W&B run of the caller open
    "console": "off",
    "init_timeout": ONLINE_SECONDS,
    "save_code": False,
    "finish_timeout": FINISH_SECONDS,
    "finish_timeout_raises": True,  # otherwise nothing shows whether all data was sent
    "host": "",
    "program": "train.py",  # not its path
    "disable_git": True,  # a repository's address names its owner
    "x_disable_meta": True,  # no host name, no user, no files of the working directory
    "x_disable_stats": True,
    "x_transaction_log_flush_interval": FLUSH_SECONDS,
}


class TrackedRun:
    """A run in W&B: online if there is a login and the server answers, otherwise offline.

    Offline, W&B cannot append to the files of an earlier process, so the whole curve is written again. The
    earlier files may have more points than the checkpoint from which the run resumes. They are removed when
    the new ones are as large.
    """

    def __init__(self, options: WandbOptions, opened: OpenedRun) -> None:
        """Open the run; a stop in W&B stops it. System statistics are sent only for runs that train."""
        self.options = options
        self.directory = directory = opened.directory
        manifest, stop = opened.manifest, opened.stop
        number = run_id(directory, manifest.wandb)
        self.replaced = [folder for folder in offline_folders(directory) if identifier(folder) == number]
        self.run, self.place = open_run(
            options,
            opened.card,
            directory,
            number,
            stop_fn=lambda: stop("W&B") if stop else None,
            git_commit=manifest.source.commit if manifest.source and options.git_commit else None,
            x_disable_stats=stop is None or not options.system_statistics,
        )
        if manifest.evaluation is None:
            show_in_terminal(Path(self.run.dir).parent, directory)
        define_axes(self.run)
        self.run.summary.update({"status": "running", "reason": None, "finished": None})
        save_file(self.run, MANIFEST, sealed(manifest.as_json()).encode())
        for row in opened.rows:
            self._log_training(row)
        if opened.weights and self.place["mode"] == "online":
            with suppress(wandb.errors.Error, ValueError):  # the run may not have sent any
                self.run.use_artifact(opened.weights)

    def log(self, row: Mapping[str, Any]) -> None:
        self._log_training(row)
        self._save_console()
        if self.replaced and written(Path(self.run.dir).parent) >= max(map(written, self.replaced)):
            self._remove_replaced()

    def finish(self, manifest: str, exit_code: int) -> None:
        facts = parse_manifest(manifest.encode())
        save_file(self.run, MANIFEST, manifest.encode())
        self._save_console()
        for name in facts.tables:
            save_file(self.run, name, (self.directory / name).read_bytes())
        try:
            run = load_evaluation(self.directory, facts)
            log_charts(self.run, run, int(run.config["trainer"]["max_steps"]) + 1)
            self.run.summary.update(summary(run))
            if run.status == "done" and facts.evaluation is None:
                self._log_artifacts(facts)
        finally:
            self.run.finish(exit_code=exit_code)
        self._remove_replaced()

    def _log_training(self, row: Mapping[str, Any]) -> None:
        metrics = training_row(row)
        if login.in_wandb_sweep():
            metrics[OBJECTIVE] = metrics["validation/loss"]
        _log(self.run, metrics, int(row["step"]))

    def _save_console(self) -> None:
        """Save the run's output so far to the file that W&B shows as its log."""
        path = self.directory / LOG
        if not self.options.console or not path.exists():
            return
        printed = path.read_text(errors="replace").splitlines()
        log = Path(self.run.dir) / CONSOLE
        log.write_text("".join(f"{without_paths(without_secrets(line))}\n" for line in printed))
        self.run.save(log, base_path=self.run.dir, policy="live")

    @property
    def _folder(self) -> Path:
        return Path(self.run.dir) / FOLDER

    def _log_artifacts(self, manifest: Manifest) -> None:
        about = visible(manifest.model_dump(include={"study", "run", "identity", "pos", "attention", "seed"}))
        data = visible(manifest.data.as_json()) if manifest.data else {}
        kind = (manifest.config or {})["data"]["source"]
        source = wandb.Artifact(f"data-{artifact_name(str(kind))}", "dataset", metadata=dict(data))
        with source.new_file("data.json") as facts_of_text:
            json.dump(data, facts_of_text, indent=2, sort_keys=True)
        if self.place["mode"] == "online":
            self.run.use_artifact(source)
        else:  # offline, W&B does not allow using an artifact
            self.run.log_artifact(source)
        name = artifact_name(self.directory.name)
        tables = wandb.Artifact(f"evaluation-{name}", "evaluation", metadata=about)
        for file in manifest.tables:
            _add(tables, self._folder / file)
        _add(tables, self._folder / MANIFEST)
        self.run.log_artifact(tables)
        if self.options.checkpoints and (self.directory / FINAL).exists():  # a run from an archive has none
            weights = wandb.Artifact(f"checkpoint-{name}", "model", metadata=about)
            _add(weights, self.directory / FINAL)
            if TOKENIZER in (manifest.files or {}):
                _add(weights, self.directory / TOKENIZER)
            _add(weights, self._folder / MANIFEST)
            self.run.log_artifact(weights)

    def _remove_replaced(self) -> None:
        for folder in self.replaced:
            shutil.rmtree(folder, ignore_errors=True)
        self.replaced = []


def open_run(
    options: WandbOptions, card: Card, directory: Path, number: str, **more: Any
) -> tuple[Any, dict[str, Any]]:
    """Open a W&B run, offline if the server refuses or does not answer; return the run and its place.

    `number` is the run's id in W&B, and `more` are settings of W&B.
    """
    mode, because = login.mode()
    arguments: dict[str, Any] = {
        "project": options.project,
        "entity": options.entity,
        "dir": directory,
        "id": number,
        "resume": "allow",
        **vars(as_sent(card, options.tags or ())),  # its fields have the names of W&B's arguments
        "settings": wandb.Settings(**{**SETTINGS, "x_stats_pid": os.getpid(), **more}),
    }
    try:
        run = wandb.init(**arguments, mode=mode)  # type: ignore[arg-type]
        if not run.offline and wandb.setup().ensure_service().owns_service:
            _stage_without_paths()
    except Exception as error:  # also an unexpected answer, which ends the client's own process
        if mode not in ("online", None):
            raise
        because = one_line(error, 200) or type(error).__name__
        login.forget_client()  # it would still have a run with this id
        run = wandb.init(**arguments, mode="offline")
    atexit.register(login.forget_client)
    return run, _place(run, options, directory, because)


def _place(run: Any, options: WandbOptions, directory: Path, because: str | None) -> dict[str, Any]:
    """Return the place of the run, for a manifest, without local paths."""
    place: dict[str, Any] = {"id": run.id, "mode": "offline" if run.offline else "online"}
    path = Path(run.dir).parent.resolve().relative_to(directory.resolve()) if run.offline else None
    place |= {"url": None if run.offline else run.url, "path": None if path is None else str(path)}
    return {**place, **login.requested_place(options), **({"because": because} if because else {})}


def define_axes(run: Any) -> None:
    """Set the x axis of each chart: tokens for curves, `axes` for the others.

    Of these metrics, only the best and last validation loss are in W&B's summary; `summary` adds the rest.
    """
    for name in ("tokens", "step", "seconds"):
        run.define_metric(name, hidden=True)
    for name in ("train/*", "validation/*", "optimizer/*", "cost/*"):
        run.define_metric(name, step_metric="tokens", summary="none")
    run.define_metric("validation/loss", step_metric="tokens", summary="min,last")
    for family, axis in axes().items():  # without a summary: it would be the last point
        run.define_metric(axis, hidden=True, summary="none")
        run.define_metric(family, step_metric=axis, summary="none")


def _add(artifact: wandb.Artifact, path: Path) -> None:
    """Add a file, named as staged files are, without a copy in the user's home."""
    staging = os.environ.get("WANDB_DATA_DIR", "")
    named = _from_here(path) if Path(staging).is_relative_to(HERE) else path
    artifact.add_file(str(named), policy="immutable", skip_cache=True)


def log_charts(opened: Any, run: Run, step: int) -> None:
    """Log the charts and tables of a record from `step`, except rows that the server already has."""
    rows: list[dict[str, Any]] = [dict(row) for row in chart_rows(run)]
    if tables := {f"tables/{name}": _table(sheet) for name, sheet in sheets(run).items()}:
        rows = rows or [{}]
        rows[0] |= tables
    for number, row in enumerate(rows, step):
        _log(opened, row, number)


def _table(rows: Sequence[Mapping[str, Any]]) -> wandb.Table:
    """Return the rows as a table; a cell that a row lacks is empty."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = [[row.get(column) for column in columns] for row in rows]
    return wandb.Table(columns=visible(columns), data=visible(cells))


def _log(opened: Any, row: Mapping[str, Any], step: int) -> None:
    if step >= opened.starting_step:  # earlier rows are on the server
        # Commit at once: otherwise W&B waits for the next row, and a crash loses this one.
        opened.log(dict(row), step=step, commit=True)


def save_file(opened: Any, name: str, content: bytes) -> None:
    """Save a file of the record among the run's files in W&B; offline, among the files to sync.

    Local paths in JSON files are cut to their last component.
    """
    if name.endswith(".json"):
        content = published_file(content)
    path = Path(opened.dir) / FOLDER / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    opened.save(path, base_path=opened.dir, policy="now")


@contextmanager
def own_variables(folder: Path) -> Iterator[None]:
    """Set W&B's environment variables for the duration of the block, and restore them at the end.

    Files are staged in WANDB_DATA_DIR, by default below `folder`, not in the user's home. A service of W&B's
    agent is not used: it would not end with this process.
    """
    before = {name: os.environ.get(name) for name in ("WANDB_DATA_DIR", "WANDB_SILENT", "WANDB_SERVICE")}
    os.environ.setdefault("WANDB_DATA_DIR", str(folder / "wandb"))
    os.environ.setdefault("WANDB_SILENT", "true")  # no message about the login
    os.environ.pop("WANDB_SERVICE", None)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _stage_without_paths() -> None:
    """Set W&B's staging folder to a path from HERE: W&B's own process has the same working directory.

    W&B sends the paths of staged files. Offline they stay absolute: `wandb sync` finds them from anywhere.
    """
    staging = os.environ.get("WANDB_DATA_DIR")
    if staging and HERE.exists():
        os.environ["WANDB_DATA_DIR"] = str(_from_here(Path(staging)))


def _from_here(path: Path) -> Path:
    """Return the path with HERE for the working directory; unchanged if it is outside of it."""
    absolute, directory = path.absolute(), Path.cwd()
    return HERE / absolute.relative_to(directory) if absolute.is_relative_to(directory) else path
