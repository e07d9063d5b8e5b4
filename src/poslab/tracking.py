"""Tracking: what a run shows while and after it trains. The run record stays the source of every result."""

import math
import netrc
import os
import secrets
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from poslab.config import LoggerOptions

ONLINE_WAIT = 20  # seconds until a W&B server that does not answer means offline
FINISH_WAIT = 60  # seconds for the last points; what is not sent by then stays on disk, to be synced


class Tracker(Protocol):
    """What a run tells; `place` is how to find it again, for the manifest (None: nowhere).

    A run that goes on after an interruption opens it anew and logs all its rows again.
    """

    @property
    def place(self) -> Mapping[str, Any] | None: ...

    def log(self, row: Mapping[str, Any]) -> None:
        """A row of metrics.csv."""

    def finish(self, summary: Mapping[str, Any], lengths: list[Mapping[str, Any]], exit_code: int) -> None:
        """The run's end: summary figures, and loss by length as rows (length, protocol, bits per byte)."""


class NoTracker:
    """logger=local: the record alone."""

    place: Mapping[str, Any] | None = None

    def log(self, row: Mapping[str, Any]) -> None:
        pass

    def finish(self, summary: Mapping[str, Any], lengths: list[Mapping[str, Any]], exit_code: int) -> None:
        pass


class WandbTracker:
    """A W&B run, online where the user is logged in and the server answers, else offline at once."""

    def __init__(
        self,
        options: LoggerOptions,
        directory: Path,
        study: str,
        name: str,
        config: dict[str, Any],
        number: str,
    ) -> None:
        """`number` is W&B's id of the run, the same whenever the run is opened again."""
        import wandb

        self.wandb = wandb
        # Offline, W&B cannot add to what an earlier process wrote, and would begin a second part at step 0:
        # the whole curve is written anew in its place.
        for left in (directory / "wandb").glob(f"offline-run-*-{number}"):
            shutil.rmtree(left)
        mode = os.environ.get("WANDB_MODE") or ("online" if logged_in() else "offline")
        arguments: dict[str, Any] = {
            "project": options.project,
            "entity": options.entity,
            "dir": directory,
            "id": number,
            "resume": "allow",
            "group": study,
            "job_type": "train",
            "name": name,
            "config": config,
        }
        try:
            self.run = wandb.init(**arguments, mode=mode, settings=_settings())  # type: ignore[arg-type]
        except wandb.errors.Error:
            if mode != "online":
                raise
            self.run = wandb.init(**arguments, mode="offline", settings=_settings())
            mode = "offline"
        self.run.define_metric("tokens")
        self.run.define_metric("*", step_metric="tokens")
        self.place: Mapping[str, Any] | None = {
            "id": number,
            "mode": mode,
            "url": self.run.url if mode == "online" else None,
            "path": str(Path(self.run.dir).parent.resolve().relative_to(directory.resolve()))
            if mode == "offline"
            else None,
        }

    def log(self, row: Mapping[str, Any]) -> None:
        if row["step"] < self.run.step:  # the server has it from before an interruption
            return
        self.run.log(
            {
                "tokens": row["tokens"],
                "step": row["step"],
                "seconds": row["seconds"],
                "train/loss": row["train_nll"] / row["train_tokens"],
                "validation/loss": row["validation_nll"] / row["validation_tokens"],
                "learning_rate": row["learning_rate"],
                "gradient_norm": row["gradient_norm"],
                "tokens_per_second": row["tokens_per_second"],
            },
            step=row["step"],
            commit=True,  # W&B would hold it back until the next one, and a crash would lose it
        )

    def finish(self, summary: Mapping[str, Any], lengths: list[Mapping[str, Any]], exit_code: int) -> None:
        self.run.summary.update(dict(summary))
        if lengths:
            columns: list[str | int] = list(lengths[0])
            table = self.wandb.Table(columns=columns, data=[list(row.values()) for row in lengths])
            sliced = [
                [row["length"], row["bits_per_byte"]]
                for row in lengths
                if row["protocol"] == "non_overlapping"
            ]
            line = self.wandb.Table(columns=["length", "bits_per_byte"], data=sliced)
            title = "Bits per byte by evaluation length"
            self.run.log(
                {
                    "extrapolation": table,
                    "extrapolation_line": self.wandb.plot.line(line, "length", "bits_per_byte", title=title),
                }
            )
        self.run.finish(exit_code=exit_code)


def _settings() -> Any:
    import wandb

    return wandb.Settings(
        silent=True,
        console="off",
        init_timeout=ONLINE_WAIT,
        save_code=False,
        finish_timeout=FINISH_WAIT,
        host="",
        x_disable_meta=True,  # no command line and no host name leave the machine
        x_disable_stats=True,
        x_transaction_log_flush_interval=2,  # a killed run keeps all but its last seconds
    )


def logged_in() -> bool:
    """Whether W&B has a key for its server: from the environment, or from the file `wandb login` writes."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    host = urlsplit(os.environ.get("WANDB_BASE_URL") or "https://api.wandb.ai").hostname or ""
    path = Path(os.environ.get("NETRC") or "~/.netrc").expanduser()
    try:
        return netrc.netrc(path).authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False


class Careful:
    """A tracker whose failure is said once and costs nothing else: the record does not need it."""

    def __init__(self, tracker: Tracker) -> None:
        self.tracker = tracker
        self.place = tracker.place

    def log(self, row: Mapping[str, Any]) -> None:
        self._try(lambda: self.tracker.log(row))

    def finish(self, summary: Mapping[str, Any], lengths: list[Mapping[str, Any]], exit_code: int) -> None:
        self._try(lambda: self.tracker.finish(summary, lengths, exit_code))

    def _try(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:
            self.tracker = NoTracker()
            print(f"W&B failed, the run goes on without it: {type(error).__name__}: {error}", file=sys.stderr)


def first_place(options: LoggerOptions, directory: Path) -> Mapping[str, Any] | None:
    """What the manifest says of a run's tracking before it is opened: its id, so that a crash keeps it.

    The id of what is there already, where the manifest was lost.
    """
    if options.name == "local":
        return None
    known = [path.name.rpartition("-")[2] for path in sorted((directory / "wandb").glob("*run-*-*"))]
    return {"id": known[-1] if known else secrets.token_hex(4)}


def open_tracker(
    options: LoggerOptions,
    directory: Path,
    study: str,
    name: str,
    config: dict[str, Any],
    place: Mapping[str, Any] | None,
) -> Tracker:
    """The tracker that `logger` names, for the run at `place`."""
    if place is None or options.name == "local":
        return NoTracker()
    try:
        return Careful(WandbTracker(options, directory, study, name, config, place["id"]))
    except Exception as error:  # a full disk, a setting of W&B's own that is wrong
        print(f"W&B failed, the run goes on without it: {error}", file=sys.stderr)
        return NoTracker()


def by_length(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Rows of extrapolation.csv, summed over segments, as loss (nats a token) and bits_per_byte."""
    sums: dict[tuple[str, str, int], list[float]] = {}
    for row in rows:
        total = sums.setdefault((row["protocol"], row["multiple"], row["length"]), [0.0, 0, 0])
        for place, key in enumerate(("nll", "tokens", "bytes")):
            total[place] += row[key]
    return [
        {
            "protocol": protocol,
            "multiple": float(multiple),
            "length": length,
            "loss": nll / tokens,
            "bits_per_byte": nll / count / math.log(2),
        }
        for (protocol, multiple, length), (nll, tokens, count) in sums.items()
    ]


def summary(outcome: Mapping[str, Any], lengths: list[Mapping[str, Any]]) -> dict[str, Any]:
    """The run's figures under the names that they have in a report's summary.csv."""
    figures = {
        "non_overlapping": {"loss": "loss", "bits_per_byte": "bits_per_byte"},
        "sliding": {"sliding": "loss"},
    }
    return {
        **outcome,
        **{
            f"{name}_{row['multiple']:g}x": row[key]
            for row in lengths
            for name, key in figures.get(row["protocol"], {}).items()
        },
    }
