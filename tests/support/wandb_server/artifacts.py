"""The stand-in's answers about artifacts: their making, their versions and aliases, and their files."""

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from support.wandb_server.graphql import Refused, Resolver, connection
from support.wandb_server.store import Artifact, Server, md5
from support.wandb_server.versions import artifact_value

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


STORAGE: dict[str, Callable[[Server, str, bytes | None], bytes | None]] = {
    "blob": _take_blob,
    "manifest": _take_manifest,
}
