"""A local stand-in for W&B's server, for the real client; it stores what that sends as plain data.

    server = served("module")  # a fixture; a test asks for `server`

    def test_x(server):
        subprocess.run([...], env={**os.environ, **server.environment})
        assert server.runs["id"].history[0]["tokens"] == 0

The client keeps its server, key and settings for a whole process: after `wandb.init` or `wandb.Api()` a new
WANDB_BASE_URL counts once `wandb.teardown()` was called, and a missing server costs 90 s of retries.
So use a separate process for a client, or `with online(server):` around its use in this one. The stand-in
accepts one key (others get 401), creates a project when a run is sent to it, and
refuses a view of a project that does not exist.
"""

import base64
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch
from urllib.parse import unquote, urlsplit

import pytest

from support.wandb_server import artifacts, runs, views
from support.wandb_server.graphql import Document, Refused, Resolver
from support.wandb_server.store import KEY, Seen, Server

Reply = tuple[int, bytes]  # status, body


@contextmanager
def serve(folder: Path, kind: "type[Listener] | None" = None) -> Iterator[Server]:
    """Start a server, of `kind` if given; the client's caches and settings are in `folder`.

    Fail at the end if a client requested something that the stand-in does not know.
    """
    with (kind or Listener)(("127.0.0.1", 0), _Handler) as listener:
        listener.resolvers = {}
        address = f"http://127.0.0.1:{listener.server_port}"
        listener.kept = Server(address, _environment(address, folder))
        for part in (runs, artifacts, views):
            listener.resolvers |= part.roots(listener.kept)
        thread = threading.Thread(target=listener.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield listener.kept
        finally:
            listener.shutdown()
            thread.join()
        assert listener.kept.unknown == []  # unknown requests of clients


def served(scope: Literal["function", "module"]) -> Any:
    """Return the fixture `server`."""

    @pytest.fixture(scope=scope, name="server")
    def fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
        with serve(tmp_path_factory.mktemp("wandb")) as server:
            yield server

    return fixture


@contextmanager
def online(server: Server) -> Iterator[None]:
    """Connect the client of this process to `server`, and disconnect it at the end."""
    import wandb

    wandb.teardown()
    with patch.dict(os.environ, server.environment):
        try:
            yield
        finally:
            wandb.teardown()


def _environment(address: str, folder: Path) -> dict[str, str]:
    places = {f"WANDB_{name}_DIR": str(folder / name) for name in ("CACHE", "CONFIG", "DATA", "ARTIFACT")}
    known = {"WANDB_BASE_URL": address, "WANDB_API_KEY": KEY, "WANDB_MODE": "online"}
    return {**places, **known, "WANDB_ERROR_REPORTING": "false"}


class Listener(ThreadingHTTPServer):
    daemon_threads = True
    kept: Server
    resolvers: dict[str, Resolver]
    lock = threading.Lock()

    def take(self, seen: Seen, key: str | None) -> Reply:
        with self.lock:
            self.kept.requests.append(seen)
            path = unquote(urlsplit(seen.path).path)
            try:
                return 200, self._answer(seen, path, key)
            except Refused as refused:
                message, status = str(refused), refused.status
            except Exception as error:  # unknown: otherwise the client would retry for minutes
                self.kept.unknown.append(f"{seen.method} {path}: {error!r}")
                message, status = repr(error), 400
            return status, json.dumps({"data": None, "errors": [{"message": message}]}).encode()

    def _answer(self, seen: Seen, path: str, key: str | None) -> bytes:
        if path.startswith("/storage/"):  # such addresses are issued and need no key
            return self._stored(seen, path.removeprefix("/storage/"))
        if key != self.kept.key:
            raise Refused("user is not logged in", 401)
        sent = json.loads(seen.body)
        if path == "/graphql":
            document = Document(sent["query"], sent.get("variables"))
            return json.dumps({"data": document.answer(self.resolvers)}).encode()
        if path.startswith("/files/") and path.endswith("/file_stream"):
            return json.dumps(runs.take_stream(self.kept, path.split("/")[-2], sent)).encode()
        raise LookupError("an address")

    def _stored(self, seen: Seen, path: str) -> bytes:
        kind, _, rest = path.partition("/")
        takers = {"run": runs.take_file, "blob": artifacts.take_blob, "manifest": artifacts.take_manifest}
        content = takers[kind](self.kept, rest, seen.body if seen.method == "PUT" else None)
        if content is None:
            raise Refused("no such file", 404)
        return b"" if seen.method == "PUT" else content


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Listener

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name: value for name, value in self.headers.items() if name.lower() != "authorization"}
        status, content = self.server.take(Seen(self.command, self.path, headers, body), self._key())
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_HEAD = _answer

    def _key(self) -> str | None:
        scheme, _, value = (self.headers.get("Authorization") or "").partition(" ")
        return base64.b64decode(value).decode().partition(":")[2] if scheme.lower() == "basic" else None

    def log_message(self, format: str, *args: Any) -> None:
        pass
