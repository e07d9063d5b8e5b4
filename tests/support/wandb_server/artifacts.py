"""The stand-in's answers about artifacts: their making, their versions, aliases and files."""

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from support.wandb_server.graphql import Arguments, Refused, Resolver, connection
from support.wandb_server.store import LONG_AGO, Artifact, Run, Server, file_value, md5

Row = dict[str, Any]


def roots(server: Server) -> dict[str, Resolver]:
    return {
        "artifact": lambda given: _by_key(server, given["id"]),
        "createArtifact": lambda given: _create(server, given["input"]),
        "createArtifactManifest": lambda given: _manifest(server, given["input"]["artifactID"]),
        "createArtifactFiles": lambda given: _create_files(server, given["input"]),
        "commitArtifact": lambda given: _commit(server, given["input"]["artifactID"]),
        "useArtifact": lambda given: _use(server, given["input"]),
    }


def _get(server: Server, key: str) -> Artifact:
    key = server.clients.get(key, key)
    key = server.clients.get(key, key)  # of a version that another one replaced
    for each in server.kept_artifacts:
        if each.key == key:
            return each
    raise Refused(f"artifact {key} not found", 404)


def _by_key(server: Server, key: str) -> Row:
    return artifact_value(server, _get(server, key))


def _create(server: Server, given: Row) -> Row:
    """A version to be filled, or the one of the same content that is there."""
    collection = given.get("artifactCollectionName") or given["artifactCollectionNames"][0]
    entity = given["entityName"] or server.entity  # a run that was offline does not know it
    project, type_name = given["projectName"], given["artifactTypeName"]
    kept = [each for each in server.committed(entity, project) if each.collection == collection]
    made = next((each for each in kept if each.digest == given["digest"]), None)
    aliases = [each["alias"] for each in given.get("aliases") or []]
    if made is None:
        made = Artifact(
            entity,
            project,
            type_name,
            collection,
            number=len(server.kept_artifacts) + 1,
            digest=given["digest"],
            description=given.get("description"),
            metadata=json.loads(given.get("metadata") or "{}"),
            asked_aliases=aliases,
        )
        server.project_number(entity, project)
        server.kept_artifacts.append(made)
    else:
        _name(server, made, aliases)
    if given.get("clientID"):
        server.clients[given["clientID"]] = made.key
    if given.get("runName"):
        run = server.run(entity, project, given["runName"])
        if made not in run.logged:
            run.logged.append(made)
    return {"artifact": artifact_value(server, made)}


def _versions(server: Server, artifact: Artifact) -> list[Artifact]:
    kept = server.committed(artifact.entity, artifact.project)
    return [each for each in kept if each.collection == artifact.collection]


def _name(server: Server, artifact: Artifact, aliases: list[str]) -> None:
    """An alias belongs to one version of a collection."""
    for each in _versions(server, artifact):
        each.aliases = [alias for alias in each.aliases if alias not in aliases]
    artifact.aliases += aliases


def _manifest(server: Server, key: str) -> Row:
    """A manifest has its artifact's key."""
    url = f"{server.address}/storage/manifest/{_get(server, key).key}"
    return {"artifactManifest": {"id": key, "file": {"id": key, "uploadUrl": url, "uploadHeaders": []}}}


def _create_files(server: Server, given: Row) -> Row:
    nodes: list[Row] = [
        {
            "storagePath": f"blob/{quote(file['md5'], safe='')}",
            "uploadUrl": f"{server.address}/storage/blob/{quote(file['md5'], safe='')}",
            "uploadHeaders": [],
            "artifact": {"id": file["artifactID"]},
        }
        for file in given["artifactFiles"]
    ]
    return {"files": connection(nodes)}


def _commit(server: Server, key: str) -> Row:
    artifact = _get(server, key)
    entries = json.loads(artifact.manifest)["contents"]
    artifact.files = {
        name: server.blobs[entry["digest"]] for name, entry in entries.items() if "ref" not in entry
    }
    artifact.version = len(_versions(server, artifact))
    _name(server, artifact, artifact.asked_aliases)
    return {"artifact": artifact_value(server, artifact)}


def _use(server: Server, given: Row) -> Row:
    artifact = _get(server, given["artifactID"])
    run = server.run(given["entityName"], given["projectName"], given["runName"])
    if artifact not in run.used:
        run.used.append(artifact)
    return {"artifact": artifact_value(server, artifact)}


def _take_blob(server: Server, digest: str, content: bytes | None) -> bytes | None:
    if content is not None:
        if md5(content) != digest:
            raise Refused("the file is not the one whose digest was sent", 400)
        server.blobs[digest] = content
    return server.blobs.get(digest)


def _take_manifest(server: Server, key: str, content: bytes | None) -> bytes | None:
    artifact = _get(server, key)
    if content is not None:
        artifact.manifest = content
    return artifact.manifest


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


STORAGE: dict[str, Callable[[Server, str, bytes | None], bytes | None]] = {
    "blob": _take_blob,
    "manifest": _take_manifest,
}
