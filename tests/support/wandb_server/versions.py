"""What the stand-in tells of artifacts: their versions, aliases and files."""

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from support.wandb_server.graphql import Arguments, connection
from support.wandb_server.store import LONG_AGO, Artifact, Run, Server, file_value, md5

Row = dict[str, Any]


def project_fields(server: Server, entity: str, project: str) -> dict[str, Any]:
    """What a project tells of its artifacts."""
    kept = server.committed(entity, project)

    def one(name: str, told: Callable[[Server, Artifact], Row]) -> Row | None:
        found = find_version(kept, name)
        return told(server, found) if found else None

    def collection(given: Arguments) -> Row:
        def of_alias(alias: Arguments) -> Row | None:
            return one(f"{given['name']}:{alias['aliasName']}", _membership)

        return {"__typename": "ArtifactSequence", "artifactMembership": of_alias}

    return {
        "artifact": lambda given: one(given["name"], artifact_value),
        "artifactCollectionMembership": lambda given: one(given["name"], _membership),
        "artifactCollection": collection,
    }


def run_facts(server: Server, run: Run) -> Row:
    return {
        "__typename": "Run",
        "id": run.key,
        "name": run.name,
        "project": lambda _: server.project_facts(run.entity, run.project),
    }


def find_version(kept: list[Artifact], name: str) -> Artifact | None:
    """The version that `name:alias` says; `latest` without an alias."""
    collection, _, alias = name.partition(":")
    for each in kept:
        if each.collection == collection and (alias or "latest") in (f"v{each.version}", *each.aliases):
            return each
    return None


def artifact_value(server: Server, artifact: Artifact) -> Row:
    latest = find_version(server.committed(artifact.entity, artifact.project), artifact.collection)
    url = f"{server.address}/storage/manifest/{artifact.key}"
    made_by = next((run for run in server.kept_runs.values() if artifact in run.logged), None)
    return {
        "__typename": "Artifact",
        "id": artifact.key,
        "state": "PENDING" if artifact.version is None else "COMMITTED",
        "artifactSequence": {
            **_collection_facts(server, artifact),
            "latestArtifact": {"id": latest.key, "versionIndex": latest.version} if latest else None,
        },
        "artifactType": {"name": artifact.type},
        "versionIndex": artifact.version,
        "description": artifact.description,
        "metadata": json.dumps(artifact.metadata),
        "ttlDurationSeconds": -2,
        "ttlIsInherited": True,
        "tags": [],
        "size": sum(map(len, artifact.files.values())),
        "digest": artifact.digest,
        "fileCount": len(artifact.files),
        "createdAt": LONG_AGO,
        "aliases": [
            {**each, "artifactCollection": _collection_facts(server, artifact)} for each in _aliases(artifact)
        ],
        "currentManifest": {"file": {"directUrl": url}},
        "createdBy": lambda _: run_facts(server, made_by) if made_by else None,
    }


def _aliases(artifact: Artifact) -> list[Row]:
    return [
        {"__typename": "ArtifactAlias", "id": f"{artifact.key}/{alias}", "alias": alias}
        for alias in artifact.aliases
    ]


def _collection_facts(server: Server, artifact: Artifact) -> Row:
    return {
        "__typename": "ArtifactSequence",
        "id": f"collection-{artifact.project}-{artifact.collection}",
        "name": artifact.collection,
        "project": lambda _: server.project_facts(artifact.entity, artifact.project),
    }


def _membership(server: Server, artifact: Artifact) -> Row:
    blobs = f"{server.address}/storage/blob"
    return {
        "__typename": "ArtifactCollectionMembership",
        "id": f"membership-{artifact.key}",
        "versionIndex": artifact.version,
        "createdAt": LONG_AGO,
        "aliases": _aliases(artifact),
        "artifactCollection": _collection_facts(server, artifact),
        "artifact": lambda _: artifact_value(server, artifact),
        "files": lambda _: connection(
            file_value(artifact.key, name, content, f"{blobs}/{quote(md5(content), safe='')}")
            for name, content in artifact.files.items()
        ),
    }
