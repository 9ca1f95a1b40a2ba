"""A hub of models on 127.0.0.1: the part of the Hugging Face hub's HTTP API by which its client downloads a model."""

import contextlib
import hashlib
import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlparse

_COMMIT = "1" * 40


class _Handler(http.server.BaseHTTPRequestHandler):
    hub: "Hub"

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def answer(self) -> None:
        path = unquote(urlparse(self.path).path)
        for name, folder in self.hub.models.items():
            files = {file.relative_to(folder).as_posix(): file for file in folder.rglob("*") if file.is_file()}
            if path == f"/api/models/{name}/revision/main" or path == f"/api/models/{name}":
                listed = [{"rfilename": file} for file in files]
                return self.send(json.dumps({"id": name, "sha": _COMMIT, "siblings": listed}).encode())
            if path.startswith(f"/api/models/{name}/tree/"):
                if self.hub.failures:
                    self.hub.failures -= 1
                    return self.send_error(503)
                sizes = {file: where.stat().st_size for file, where in files.items()}
                rows = [{"type": "file", "path": file, "size": size, "oid": _COMMIT} for file, size in sizes.items()]
                return self.send(json.dumps(rows).encode())
            wanted = path.removeprefix(f"/{name}/resolve/{_COMMIT}/")
            if wanted != path and wanted in files:
                if self.command == "GET":
                    self.hub.downloaded.append(wanted)
                content = files[wanted].read_bytes()
                return self.send(content, {"X-Repo-Commit": _COMMIT, "ETag": f'"{hashlib.sha1(content).hexdigest()}"'})
        self.send_response(404)
        if path.startswith("/api/models/"):
            self.send_header("X-Error-Code", "RepoNotFound")
        self.send_header("Content-Length", "0")
        self.end_headers()
        return None

    def send(self, content: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(200)
        for name, value in ({"Content-Length": str(len(content))} | (headers or {})).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass


class Hub:
    """A running hub.

    Attributes:
        models: name of a model, such as `org/name` -> its folder.
        downloaded: the files that were downloaded, in order.
        failures: how many times the next requests for lists of files fail.
    """

    def __init__(self) -> None:
        self.models: dict[str, Path] = {}
        self.downloaded: list[str] = []
        self.failures = 0
        self._address = ""

    def run(self, code: str, cache: Path) -> str:
        """Run Python code in a process whose huggingface_hub uses this hub and that cache; return what it printed."""
        environment = os.environ | {"HF_ENDPOINT": self._address, "HF_HOME": str(cache), "HF_HUB_OFFLINE": "0"}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    @classmethod
    @contextlib.contextmanager
    def running(cls) -> Iterator["Hub"]:
        """Serve until the end of the block."""
        hub = cls()
        handler = type("Handler", (_Handler,), {"hub": hub})
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
            hub._address = f"http://127.0.0.1:{server.server_port}"
            threading.Thread(target=server.serve_forever, daemon=True).start()
            yield hub
            server.shutdown()
