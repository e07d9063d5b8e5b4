"""The stand-in's answers about artifacts: their creation, versions, aliases and files."""

import json
from collections.abc import Callable, Sequence
from urllib.parse import quote

from support.wandb_server.graphql import Arguments, Refused, Resolver, Row, connection
from support.wandb_server.store import Artifact, Server, file_value, md5


def roots(server: Server) -> dict[str, Resolver]:
    return {
        "artifact": lambda given: _told(server, _get(server, given["id"])),
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


def _create(server: Server, given: Row) -> Row:
    """Return a new version, or the existing one with the same content."""
    collection = given.get("artifactCollectionName") or given["artifactCollectionNames"][0]
    project, digest = given["projectName"], given["digest"]
    kept = (
        each for each in server.committed(project) if (each.collection, each.digest) == (collection, digest)
    )
    made = next(kept, None)
    aliases = [each["alias"] for each in given.get("aliases") or []]
    if made is None:
        key, metadata = (
            f"artifact-{len(server.kept_artifacts) + 1}",
            json.loads(given.get("metadata") or "{}"),
        )
        made = Artifact(key, project, given["artifactTypeName"], collection, digest, metadata, aliases)
        server.kept_artifacts.append(made)
    else:
        _name(server, made, aliases)
    if given.get("clientID"):
        server.clients[given["clientID"]] = made.key
    if given.get("runName"):
        run = server.run(given["runName"])
        if made not in run.logged:
            run.logged.append(made)
    return {"artifact": _told(server, made)}


def _versions(server: Server, artifact: Artifact) -> list[Artifact]:
    return [each for each in server.committed(artifact.project) if each.collection == artifact.collection]


def _name(server: Server, artifact: Artifact, aliases: Sequence[str]) -> None:
    """Add aliases; an alias belongs to one version of a collection."""
    for each in _versions(server, artifact):
        each.aliases = [alias for alias in each.aliases if alias not in aliases]
    artifact.aliases += aliases


def _manifest(server: Server, key: str) -> Row:
    """Return the manifest, which has its artifact's key."""
    url = f"{server.address}/storage/manifest/{_get(server, key).key}"
    return {"artifactManifest": {"id": key, "file": {"id": key, "uploadUrl": url}}}


def _place(server: Server, digest: str) -> str:
    return f"{server.address}/storage/blob/{quote(digest, safe='')}"


def _create_files(server: Server, given: Row) -> Row:
    nodes = [
        {
            "storagePath": f"blob/{quote(file['md5'], safe='')}",
            "uploadUrl": _place(server, file["md5"]),
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
    return {"artifact": _told(server, artifact)}


def _use(server: Server, given: Row) -> Row:
    artifact, run = _get(server, given["artifactID"]), server.run(given["runName"])
    if artifact not in run.used:
        run.used.append(artifact)
    return {"artifact": _told(server, artifact)}


def take_blob(server: Server, digest: str, content: bytes | None) -> bytes | None:
    if content is not None:
        if md5(content) != digest:
            raise Refused("the file is not the one whose digest was sent", 400)
        server.blobs[digest] = content
    return server.blobs.get(digest)


def take_manifest(server: Server, key: str, content: bytes | None) -> bytes | None:
    artifact = _get(server, key)
    if content is not None:
        artifact.manifest = content
    return artifact.manifest


def project_fields(server: Server, project: str) -> Row:
    """Return a project's fields about artifacts."""

    def one(name: str, told: Callable[[Server, Artifact], Row]) -> Row | None:
        found = _version(server, project, name)
        return told(server, found) if found else None

    def collection(given: Arguments) -> Row:
        return {
            "__typename": "ArtifactSequence",
            "artifactMembership": lambda alias: one(f"{given['name']}:{alias['aliasName']}", _membership),
        }

    return {
        "artifact": lambda given: one(given["name"], _told),
        "artifactCollectionMembership": lambda given: one(given["name"], _membership),
        "artifactCollection": collection,
    }


def _version(server: Server, project: str, name: str) -> Artifact | None:
    """Return the version named by `name:alias`, by default `latest`."""
    collection, _, alias = name.partition(":")
    for each in server.committed(project):
        if each.collection == collection and (alias or "latest") in (f"v{each.version}", *each.aliases):
            return each
    return None


def _told(server: Server, artifact: Artifact) -> Row:
    latest = _version(server, artifact.project, artifact.collection)
    url = f"{server.address}/storage/manifest/{artifact.key}"
    collection = _collection(server, artifact)
    return {
        "id": artifact.key,
        "state": "PENDING" if artifact.version is None else "COMMITTED",
        "artifactSequence": {
            **collection,
            "latestArtifact": {"id": latest.key, "versionIndex": latest.version} if latest else None,
        },
        "artifactType": {"name": artifact.type},
        "versionIndex": artifact.version,
        "metadata": json.dumps(artifact.metadata),
        "size": sum(map(len, artifact.files.values())),
        "digest": artifact.digest,
        "fileCount": len(artifact.files),
        "aliases": [{**each, "artifactCollection": collection} for each in _aliases(artifact)],
        "currentManifest": {"file": {"directUrl": url}},
        "createdBy": _maker(server, artifact),
    }


def _maker(server: Server, artifact: Artifact) -> Row | None:
    for run in server.runs.values():
        if artifact in run.logged:
            project = server.project_facts(run.project)
            return {"__typename": "Run", "id": run.key, "name": run.name, "project": project}
    return None


def _aliases(artifact: Artifact) -> list[Row]:
    return [{"id": f"{artifact.key}/{alias}", "alias": alias} for alias in artifact.aliases]


def _collection(server: Server, artifact: Artifact) -> Row:
    return {
        "__typename": "ArtifactSequence",
        "id": f"collection-{artifact.project}-{artifact.collection}",
        "name": artifact.collection,
        "project": server.project_facts(artifact.project),
    }


def _membership(server: Server, artifact: Artifact) -> Row:
    files = connection(
        file_value(artifact.key, name, content, _place(server, md5(content)))
        for name, content in artifact.files.items()
    )
    return {
        "id": f"membership-{artifact.key}",
        "versionIndex": artifact.version,
        "aliases": _aliases(artifact),
        "artifactCollection": _collection(server, artifact),
        "artifact": _told(server, artifact),
        "files": files,
    }
