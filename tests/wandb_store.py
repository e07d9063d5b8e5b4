"""What the stand-in for W&B's server keeps, as plain data for tests to look at."""

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

Rows = list[dict[str, Any]]
KEY = "0123456789" * 4  # the one key that the server takes


@dataclass(frozen=True)
class Seen:
    """A request as it came, without the key."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode(errors="replace")


@dataclass
class Run:
    """A run. `lines` are a run's streams by file name, each a list of lines as they were sent."""

    entity: str
    project: str
    name: str  # the id in its address
    number: int
    display_name: str = ""
    group: str | None = None
    job_type: str | None = None
    tags: list[str] = field(default_factory=list)
    notes: str | None = None
    sweep: str | None = None
    state: str = "running"
    exit_code: int | None = None
    stop: bool = False  # set by a test: the client is told to stop the run
    raw_config: dict[str, Any] = field(default_factory=dict)
    raw_summary: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, list[str]] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    used: list[str] = field(default_factory=list)  # artifacts, `name:v0`
    logged: list[str] = field(default_factory=list)

    @property
    def key(self) -> str:
        """What the server calls the run between itself and the client."""
        return f"run/{self.entity}/{self.project}/{self.name}"

    @property
    def path(self) -> str:
        return f"{self.entity}/{self.project}/{self.name}"

    @property
    def config(self) -> dict[str, Any]:
        return {key: held["value"] for key, held in self.raw_config.items() if key != "_wandb"}

    @property
    def summary(self) -> dict[str, Any]:
        return {key: value for key, value in self.raw_summary.items() if key != "_wandb"}

    @property
    def history(self) -> Rows:
        """The rows of `log`, in the order in which they were sent."""
        return [json.loads(line) for line in self.lines.get("wandb-history.jsonl", []) if line]

    @property
    def console(self) -> str:
        return "\n".join(self.lines.get("output.log", []))


@dataclass
class Server:
    """Everything that came, and what a process needs to find the server (`environment`)."""

    address: str  # http://127.0.0.1:PORT
    environment: dict[str, str]
    entity: str = "someone"
    key: str = KEY
    projects: list[tuple[str, str]] = field(default_factory=list)  # (entity, name)
    kept_runs: dict[str, Run] = field(default_factory=dict)  # by Run.key
    requests: list[Seen] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)  # operations that got an error: empty at a test's end
    missing: set[str] = field(
        default_factory=set
    )  # fields that were answered with nothing, as `operation: path`

    @property
    def runs(self) -> dict[str, Run]:
        """Runs by the id in their address."""
        return {run.name: run for run in self.kept_runs.values()}

    def project_number(self, entity: str, project: str) -> int:
        if (entity, project) not in self.projects:
            self.projects.append((entity, project))
        return self.projects.index((entity, project)) + 1


def md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()
