"""The data of the stand-in for W&B's server, as plain objects for tests."""

import base64
import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from support.wandb_server.graphql import Refused

KEY = "0123456789" * 4  # the key that the server accepts


@dataclass(frozen=True)
class Seen:
    """A request as received, without the key."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode(errors="replace")


@dataclass
class Run:
    """A run. `lines` has its streams by file name, each a list of lines as sent."""

    project: str
    name: str  # the id in its address
    display_name: str = ""
    group: str | None = None
    job_type: str | None = None
    tags: list[str] = field(default_factory=list)
    notes: str | None = None
    commit: str | None = None
    sweep: str | None = None
    state: str = "running"
    exit_code: int | None = None
    raw_config: dict[str, Any] = field(default_factory=dict)
    raw_summary: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, list[str]] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    used: list["Artifact"] = field(default_factory=list)
    logged: list["Artifact"] = field(default_factory=list)

    @property
    def key(self) -> str:
        """The internal id of the run, of which the client reads only the first part."""
        return base64.b64encode(f"Run:v1:{self.name}:{self.project}:someone".encode()).decode()

    @property
    def config(self) -> dict[str, Any]:
        return {key: held["value"] for key, held in self.raw_config.items() if key != "_wandb"}

    @property
    def summary(self) -> dict[str, Any]:
        return {key: value for key, value in self.raw_summary.items() if key != "_wandb"}

    @property
    def history(self) -> list[dict[str, Any]]:
        """The rows of `log`, in the order in which they were sent."""
        return [json.loads(line) for line in self.lines.get("wandb-history.jsonl", []) if line]


@dataclass
class Artifact:
    """A version of an artifact. `version` is None until its files and manifest are stored."""

    key: str
    project: str
    type: str
    collection: str  # its name without the version
    digest: str
    metadata: dict[str, Any]
    asked_aliases: list[str]
    version: int | None = None
    aliases: list[str] = field(default_factory=list)
    manifest: bytes = b""
    files: dict[str, bytes] = field(default_factory=dict)


@dataclass
class View:
    """A workspace (`project-view`) or a report (`runs`), as last saved."""

    key: str
    project: str
    type: str
    name: str
    display_name: str = ""
    description: str = ""
    spec: dict[str, Any] = field(default_factory=dict)
    saves: int = 0


@dataclass
class Server:
    """Everything received, and the variables with which a process finds the server (`environment`)."""

    address: str  # http://127.0.0.1:PORT
    environment: dict[str, str]
    entity: str = "someone"
    key: str = KEY
    projects: list[str] = field(default_factory=list)
    runs: dict[str, Run] = field(default_factory=dict)  # by the id in their address
    kept_artifacts: list[Artifact] = field(default_factory=list)
    blobs: dict[str, bytes] = field(default_factory=dict)  # artifacts' files by MD5
    clients: dict[str, str] = field(default_factory=dict)  # an artifact's key by its other names
    views: dict[str, View] = field(default_factory=dict)  # by key, oldest first
    requests: list[Seen] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)  # operations that got an error: empty at a test's end

    @property
    def artifacts(self) -> dict[str, Artifact]:
        """The committed artifacts, by `name:v0`."""
        return {f"{each.collection}:v{each.version}": each for each in self.committed()}

    def committed(self, project: str | None = None) -> list[Artifact]:
        """Return the artifacts of a project, or all of them."""
        whole = [each for each in self.kept_artifacts if each.version is not None]
        return [each for each in whole if project in (None, each.project)]

    def run(self, name: str) -> Run:
        """Return the run that the client names, or raise the server's error."""
        if name not in self.runs:
            raise Refused(f"run {name} not found", 404)
        return self.runs[name]

    def project_facts(self, project: str) -> dict[str, Any]:
        """Return the fields of a project, which is created if it does not exist."""
        if project not in self.projects:
            self.projects.append(project)
        number = str(self.projects.index(project) + 1)
        entity = {"id": "entity-1", "name": self.entity}
        own = {"id": f"project-{number}", "internalId": number, "name": project}
        return {**own, "entityName": self.entity, "entity": entity}


def file_value(key: str, name: str, content: bytes, address: str) -> dict[str, Any]:
    """Return the answer about a file, which is stored by the key of its run or artifact."""
    places = {"url": address, "directUrl": address}
    return {
        "id": f"{key}/{name}",
        "name": name,
        **places,
        "sizeBytes": str(len(content)),
        "md5": md5(content),
    }


def md5(content: bytes) -> str:
    """Return the MD5 in base64, as W&B writes it."""
    return base64.b64encode(hashlib.md5(content, usedforsecurity=False).digest()).decode()
