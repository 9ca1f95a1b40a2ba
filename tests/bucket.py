"""A Google Cloud Storage emulator with fault injection, for tests.

`Bucket` runs it in a process of its own; from a shell, `python tests/bucket.py --bucket NAME` prints its URL. It serves
the subset of the JSON API that gcsfs and TensorStore use, from memory. `--upstream URL` puts the faults in front of
another emulator instead, such as the `StockEmulator`.
"""

import argparse
import asyncio
import base64
import contextlib
import datetime
import hashlib
import http.client
import itertools
import json
import os
import random
import re
import socket
import struct
import subprocess
import sys
import time
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple, Self
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import google_crc32c

_KIB_256 = 2**18
_REASONS = {400: "invalid", 404: "notFound", 409: "conflict", 412: "conditionNotMet", 429: "rateLimitExceeded"}
_OBJECT = "/b/([^/]+)/o/(.+)"
_ROUTES = [  # (kind of request, methods, path)
    ("upload", "POST|PUT|DELETE", "/upload(?:/storage/v1)?/b/([^/]+)/o"),
    ("list", "GET", "(?:/storage/v1)?/b/([^/]+)/o"),
    ("copy", "POST", f"(?:/storage/v1)?/b/([^/]+)/o/(.+)/(?:rewriteTo|copyTo){_OBJECT}"),
    ("download", "GET", f"/download/storage/v1{_OBJECT}"),
    ("metadata", "GET", f"(?:/storage/v1)?{_OBJECT}"),
    ("delete", "DELETE", f"(?:/storage/v1)?{_OBJECT}"),
    ("bucket", "GET", "(?:/storage/v1)?/b/([^/]+)"),
    ("create_bucket", "POST", "(?:/storage/v1)?/b"),
]
_ROUTES = [(kind, re.compile(f"(?:{methods}) {path}")) for kind, methods, path in _ROUTES]


class Request:
    """An HTTP request; header names are in lower case."""

    def __init__(self, method: str, target: str, headers: dict[str, str], body: bytes) -> None:
        self.method, self.target, self.headers, self.body = method, target, headers, body
        path, _, query = target.partition("?")
        self.query = dict(parse_qsl(query, keep_blank_values=True))
        self.kind, self.names = "other", []
        for kind, pattern in _ROUTES:
            if match := pattern.fullmatch(f"{method} {path}"):
                self.kind, self.names = kind, [unquote(name) for name in match.groups()]
                break
        if self.kind == "metadata" and self.query.get("alt") == "media":
            self.kind = "download"


class Response(NamedTuple):
    """An HTTP response; `Content-Length` is added when it is sent."""

    status: int
    body: bytes | memoryview = b""
    headers: dict[str, str] = {}  # noqa: RUF012


class ApiError(Exception):
    """An error that the emulator answers with: an HTTP status and a message."""


def _json(value: Any, status: int = 200, **headers: str) -> Response:
    return Response(status, json.dumps(value).encode(), {"Content-Type": "application/json; charset=UTF-8"} | headers)


def _error(status: int, message: str, reason: str = "", **headers: str) -> Response:
    """An error response with a body like Google's."""
    detail = {"message": message, "domain": "global", "reason": reason or _REASONS.get(status, "backendError")}
    return _json({"error": {"code": status, "message": message, "errors": [detail]}}, status, **headers)


@dataclass
class Object:
    """One generation of a stored object."""

    bucket: str
    name: str
    data: bytes
    generation: int
    content_type: str
    metadata: dict[str, str]

    def __post_init__(self) -> None:
        self.md5 = base64.b64encode(hashlib.md5(self.data, usedforsecurity=False).digest()).decode()
        self.crc32c = base64.b64encode(google_crc32c.value(self.data).to_bytes(4, "big")).decode()
        self.created = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    def resource(self) -> dict[str, Any]:
        """The JSON API's description of the object."""
        return {
            "kind": "storage#object",
            "id": f"{self.bucket}/{self.name}/{self.generation}",
            "name": self.name,
            "bucket": self.bucket,
            "generation": str(self.generation),
            "metageneration": "1",
            "contentType": self.content_type,
            "size": str(len(self.data)),
            "md5Hash": self.md5,
            "crc32c": self.crc32c,
            "timeCreated": self.created,
            "updated": self.created,
            "etag": base64.b64encode(str(self.generation).encode()).decode(),
            "metadata": self.metadata,
        }


@dataclass
class Upload:
    """A resumable upload in progress, or finished with `stored`."""

    bucket: str
    name: str
    query: dict[str, str]
    content_type: str
    metadata: dict[str, str]
    data: bytearray = field(default_factory=bytearray)
    stored: Object | None = None


class Emulator:
    """Buckets in memory, behind a subset of the Cloud Storage JSON API.

    `handle` runs to its end in the only thread, so preconditions and writes are atomic.
    """

    def __init__(self) -> None:
        self.buckets: dict[str, dict[str, Object]] = {}
        self.sorted_names: dict[str, list[str]] = {}
        self.uploads: dict[str, Upload] = {}
        self.upload_numbers = itertools.count()
        self.generation = 0

    async def __call__(self, request: Request) -> Response:
        try:
            return self.handle(request)
        except ApiError as error:
            return _error(*error.args)

    def handle(self, request: Request) -> Response:
        """Carry out one request."""
        if request.kind == "other":
            raise ApiError(501, f"not implemented by tests/bucket.py: {request.method} {request.target}")
        if request.kind != "create_bucket" and request.names[0] not in self.buckets:
            raise ApiError(404, "The specified bucket does not exist.")
        return getattr(self, request.kind)(request, *request.names)

    def create_bucket(self, request: Request) -> Response:
        name = json.loads(request.body)["name"]
        if name in self.buckets:
            raise ApiError(409, "Your previous request to create the named bucket succeeded and you already own it.")
        self.buckets[name], self.sorted_names[name] = {}, []
        return self.bucket(request, name)

    def bucket(self, request: Request, bucket: str) -> Response:
        return _json({"kind": "storage#bucket", "id": bucket, "name": bucket, "location": "US", "metageneration": "1"})

    def get(self, request: Request, bucket: str, name: str, source: str = "") -> Object:
        """The live object, once `generation` and the preconditions on it in the query hold."""
        found = self.buckets[bucket].get(name)
        generation = request.query.get("sourceGeneration" if source else "generation")
        if found is None or generation not in (None, str(found.generation)):
            raise ApiError(404, f"No such object: {bucket}/{name}")
        self.check(request.query, bucket, name, source)
        return found

    def check(self, query: dict[str, str], bucket: str, name: str, source: str = "") -> None:
        """Raise 412 unless `ifGenerationMatch` and `ifGenerationNotMatch` hold; generation 0 is a missing object."""
        found = self.buckets[bucket].get(name)
        generation = str(found.generation if found else 0)
        if query.get(f"if{source}GenerationMatch", generation) != generation:
            raise ApiError(412, "At least one of the pre-conditions you specified did not hold.")
        if query.get(f"if{source}GenerationNotMatch") == generation:
            raise ApiError(304, "Not Modified")

    def store(self, query: dict[str, str], bucket: str, name: str, data: bytes, content: str, metadata: dict) -> Object:
        """Store an object under a new generation, if the preconditions in the query hold."""
        if bucket not in self.buckets:
            raise ApiError(404, "The specified bucket does not exist.")
        if not name:
            raise ApiError(400, "Required")
        self.check(query, bucket, name)
        self.generation = max(self.generation + 1, time.time_ns() // 1000)
        if name not in self.buckets[bucket]:
            insort(self.sorted_names[bucket], name)
        self.buckets[bucket][name] = stored = Object(bucket, name, data, self.generation, content, metadata)
        return stored

    def list(self, request: Request, bucket: str) -> Response:
        query, names = request.query, self.sorted_names[bucket]
        prefix, delimiter, end = query.get("prefix", ""), query.get("delimiter", ""), query.get("endOffset")
        token = base64.b64decode(query.get("pageToken", "")).decode()
        limit = min(int(query.get("maxResults", 1000)), 1000)
        items, prefixes = [], []
        index = bisect_left(names, max(prefix, query.get("startOffset", ""), token))
        while index < len(names) and names[index].startswith(prefix) and (not end or names[index] < end):
            if len(items) + len(prefixes) == limit:
                page = base64.b64encode(names[index].encode()).decode()
                break
            cut = names[index].find(delimiter, len(prefix)) if delimiter else -1
            if cut >= 0:
                prefixes.append(names[index][: cut + len(delimiter)])
                index = bisect_left(names, prefixes[-1] + chr(0x10FFFF), index)
            else:
                items.append(self.buckets[bucket][names[index]].resource())
                index += 1
        else:
            page = None
        result = {"items": items, "prefixes": prefixes, "nextPageToken": page}
        return _json({"kind": "storage#objects"} | {key: value for key, value in result.items() if value})

    def metadata(self, request: Request, bucket: str, name: str) -> Response:
        return _json(self.get(request, bucket, name).resource())

    def download(self, request: Request, bucket: str, name: str) -> Response:
        found = self.get(request, bucket, name)
        headers = {
            "Content-Type": found.content_type,
            "x-goog-generation": str(found.generation),
            "x-goog-metageneration": "1",
            "x-goog-hash": f"crc32c={found.crc32c},md5={found.md5}",
            "x-goog-stored-content-length": str(len(found.data)),
        }
        size, body = len(found.data), memoryview(found.data)
        match = re.fullmatch(r"bytes=(\d*)-(\d*)", request.headers.get("range", ""))
        if not match or not any(match.groups()):
            return Response(200, body, headers)
        first, last = match.groups()
        start = int(first) if first else max(size - int(last), 0)
        stop = min(int(last) + 1, size) if first and last else size
        if start >= size:
            raise ApiError(416, "The requested range cannot be satisfied.", "requestedRangeNotSatisfiable")
        return Response(206, body[start:stop], headers | {"Content-Range": f"bytes {start}-{stop - 1}/{size}"})

    def delete(self, request: Request, bucket: str, name: str) -> Response:
        self.get(request, bucket, name)
        del self.buckets[bucket][name]
        del self.sorted_names[bucket][bisect_left(self.sorted_names[bucket], name)]
        return Response(204)

    def copy(self, request: Request, bucket: str, name: str, to_bucket: str, to_name: str) -> Response:
        old = self.get(request, bucket, name, source="Source")
        new = self.store(request.query, to_bucket, to_name, old.data, old.content_type, old.metadata)
        if "/copyTo/" in request.target:
            return _json(new.resource())
        size = str(len(new.data))
        result = {"kind": "storage#rewriteResponse", "done": True, "resource": new.resource()}
        return _json(result | {"totalBytesRewritten": size, "objectSize": size})

    def upload(self, request: Request, bucket: str) -> Response:
        query, content = request.query, request.headers.get("content-type", "application/octet-stream")
        if "upload_id" in query:
            return self.resume(request)
        if request.method == "POST" and query.get("uploadType") == "media":
            return _json(self.store(query, bucket, query.get("name", ""), request.body, content, {}).resource())
        if request.method == "POST" and query.get("uploadType") == "multipart":
            resource, content, data = _multipart(content, request.body)
            name, metadata = resource.get("name") or query.get("name", ""), resource.get("metadata", {})
            return _json(self.store(query, bucket, name, data, content, metadata).resource())
        if request.method == "POST" and query.get("uploadType") == "resumable":
            resource = json.loads(request.body or b"{}")
            name = resource.get("name") or query.get("name", "")
            self.check(query, bucket, name)
            content = request.headers.get("x-upload-content-type") or resource.get("contentType", content)
            key = f"upload-{next(self.upload_numbers)}"
            self.uploads[key] = Upload(bucket, name, query, content, resource.get("metadata", {}))
            location = f"http://{request.headers['host']}{request.target}&upload_id={key}"
            return Response(200, headers={"Location": location})
        raise ApiError(400, f"expected an upload, found {request.method} {request.target}")

    def resume(self, request: Request) -> Response:
        """Take a chunk of a resumable upload, say how far it is, finish it or cancel it."""
        upload = self.uploads.get(request.query["upload_id"])
        if upload is None:
            raise ApiError(404, "No such upload")
        if request.method == "DELETE":
            del self.uploads[request.query["upload_id"]]
            return Response(499)
        if upload.stored is not None:  # also the answer to a repeated last chunk
            return _json(upload.stored.resource())
        size, received = len(request.body), len(upload.data)
        content_range = request.headers.get("content-range", f"bytes 0-{size - 1}/{size}" if size else "bytes */0")
        match = re.fullmatch(r"bytes (?:(\d+)-\d+|\*)/(\d+|\*)", content_range)
        if match is None:
            raise ApiError(400, f"expected a Content-Range, found {content_range!r}")
        start, total = match.groups()
        if start is not None:
            if int(start) > received:
                raise ApiError(503, f"the upload offset is {start}, which exceeds the already uploaded {received}")
            upload.data += request.body[received - int(start) :]
        if total != "*" and len(upload.data) == int(total):
            data = bytes(upload.data)
            upload.stored = self.store(
                upload.query, upload.bucket, upload.name, data, upload.content_type, upload.metadata
            )
            upload.data = bytearray()
            return _json(upload.stored.resource())
        del upload.data[len(upload.data) // _KIB_256 * _KIB_256 :]  # only multiples of 256 KiB are kept
        return Response(308, headers={"Range": f"bytes=0-{len(upload.data) - 1}"} if upload.data else {})


def _multipart(content_type: str, body: bytes) -> tuple[dict[str, Any], str, bytes]:
    """Split a multipart upload into the object's JSON resource, content type and data.

    The line end is the one after the first boundary, as gcsfs writes \\n: data that ends in \\r keeps that byte.
    """
    match = re.search(r'boundary="?([^";]+)', content_type)
    boundary = b"--" + match[1].encode() if match else b""
    end = b"\r\n" if body.startswith(boundary + b"\r\n") else b"\n"
    last = body.rfind(end + boundary + b"--")
    if match is None or not body.startswith(boundary + end) or last < 0:
        raise ApiError(400, "Malformed multipart body.")
    _, _, resource = body.partition(end + end)
    resource, _, media = resource.partition(end + boundary + end)
    start = len(body) - len(media)
    headers, _, _ = (end + media).partition(end + end)
    data = body[start + len(headers) + len(end) : last]
    kind = re.search(rb"(?i)^content-type:\s*(\S+)", headers, re.MULTILINE)
    return json.loads(resource), kind[1].decode() if kind else "application/octet-stream", data


class Forward:
    """Passes requests to another emulator, one at a time, as the stock emulator takes no more."""

    def __init__(self, url: str) -> None:
        self.host, self.port = urlsplit(url).hostname, urlsplit(url).port
        self.turn = asyncio.Semaphore(1)

    async def __call__(self, request: Request) -> Response:
        skipped = ("connection", "expect", "content-length")
        headers = [f"{name}: {value}\r\n" for name, value in request.headers.items() if name not in skipped]
        head = f"{request.method} {request.target} HTTP/1.1\r\n{''.join(headers)}Connection: close\r\n"
        async with self.turn:
            reader, writer = await asyncio.open_connection(self.host, self.port)
            writer.write(f"{head}Content-Length: {len(request.body)}\r\n\r\n".encode("latin-1") + request.body)
            answer = await reader.read()
            writer.close()
        head, _, body = answer.partition(b"\r\n\r\n")
        if not head:
            return _error(502, "the emulator closed the connection without an answer")
        status, *lines = head.decode("latin-1").split("\r\n")
        found = dict(line.split(": ", 1) for line in lines)
        kept = {name: value for name, value in found.items() if name.lower() not in ("content-length", "connection")}
        return Response(int(status.split()[1]), body, kept)


@dataclass
class Faults:
    """The faults to inject; a share is of the requests that `match` matches."""

    latency: float = 0.0  # seconds added to every request
    fail: float = 0.0  # share answered with an error of `fail_status`, in rotation, and not carried out
    fail_status: list[int] = field(default_factory=lambda: [503, 429, 503, 408])
    cut: float = 0.0  # share whose connection is cut
    cut_when: str = ""  # "before" it is carried out; after it, before the "answer" or in the middle of its "body"
    delay: float = 0.0  # share delayed by `delay_seconds`
    delay_seconds: float = 2.0
    match: str = ""  # regular expression, searched for in "METHOD path?query"
    limit: int | None = None  # number of failures, cuts and delays still to inject
    expire: int = 0  # number of requests still to answer with 401
    expire_match: str = ""  # regular expression like `match`, for `expire` alone
    expire_after: int | None = None  # number of requests after which every token seen until then is expired
    expired_tokens: list[str] = field(default_factory=list)  # tokens answered with 401; "" is no token
    denied: str = ""  # regular expression like `match`: requests answered with 403
    quota: int = 0  # status for uploads, 429 or 403; 0 for none
    seed: int = 0

    def change(self, settings: dict[str, Any]) -> None:
        """Set the named fields; `reset` first restores the defaults."""
        names = {each.name for each in fields(self)}
        if unknown := set(settings) - names - {"reset"}:
            raise ValueError(f"expected settings among {sorted(names)}, found {sorted(unknown)}")
        if settings.get("reset"):
            self.__init__()
        for name, value in settings.items():
            setattr(self, name, value)
        if "seed" in settings or settings.get("reset") or not hasattr(self, "random"):
            self.random, self.statuses, self.seen = random.Random(self.seed), itertools.count(), set()

    def choose(self, request: Request) -> str | None:
        """The fault to inject into one request: an error status, "delay", or "cut" and when; None for none."""
        line = f"{request.method} {request.target}"
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self.expire_after is not None:
            if self.expire_after <= 0:
                self.expired_tokens, self.expire_after = [*self.expired_tokens, *self.seen], None
            else:
                self.expire_after -= 1
        self.seen.add(token)
        if self.expire > 0 and re.search(self.expire_match, line):
            self.expire -= 1
            return "401"
        if token in self.expired_tokens:
            return "401"
        if self.denied and re.search(self.denied, line):
            return "403"
        if self.quota and request.kind == "upload" and request.method != "DELETE":
            return "quota"
        share = self.random.random()
        if self.limit == 0 or share >= self.fail + self.cut + self.delay or not re.search(self.match, line):
            return None
        self.limit = None if self.limit is None else self.limit - 1
        if share < self.fail:
            return str(self.fail_status[next(self.statuses) % len(self.fail_status)])
        if share < self.fail + self.cut:
            return f"cut {self.cut_when or self.random.choice(('before', 'before', 'answer', 'body'))}"
        return "delay"

    def refusal(self, fault: str) -> Response:
        """The response to a request that is not carried out."""
        if fault == "401":
            challenge = {"WWW-Authenticate": 'Bearer realm="https://accounts.google.com/", error="invalid_token"'}
            return _error(401, "Invalid Credentials", "authError", **challenge)
        if fault == "403":
            message = "test@example.com does not have permission to access the Google Cloud Storage object."
            return _error(403, message, "forbidden")
        if fault == "quota":
            return _error(self.quota, "The project exceeded its quota for uploads.", "quotaExceeded")
        return _error(int(fault), "We encountered an internal error. Please try again.")


class Server:
    """An HTTP/1.1 server that injects `faults` into what `carry_out` answers, and counts both."""

    def __init__(self, carry_out: Callable[[Request], Awaitable[Response]]) -> None:
        self.carry_out, self.faults = carry_out, Faults()
        self.faults.change({})
        self.requests, self.injected = Counter(), Counter()

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve the requests of one connection."""
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while await self.respond(await self.read(reader, writer), writer):
                pass
        writer.close()

    async def read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Request:
        first, *lines = (await reader.readuntil(b"\r\n\r\n"))[:-4].decode("latin-1").split("\r\n")
        method, target, _ = first.split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        if headers.get("expect", "").lower() == "100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if headers.get("transfer-encoding", "").lower() == "chunked":
            chunks = []
            while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
                chunks.append((await reader.readexactly(size + 2))[:-2])
            await reader.readuntil(b"\r\n")
            return Request(method, target, headers, b"".join(chunks))
        return Request(method, target, headers, await reader.readexactly(int(headers.get("content-length", 0))))

    async def respond(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; returns whether the connection stays open."""
        fault = None
        if request.target == "/_control":
            response = self.control(request)
        elif "x-bypass-faults" in request.headers:
            response = await self.carry_out(request)
        else:
            self.requests[f"{request.method} {request.kind}"] += 1
            fault = self.faults.choose(request)
            if pause := self.faults.latency + self.faults.delay_seconds * (fault == "delay"):
                await asyncio.sleep(pause)
            if fault in (None, "delay", "cut answer", "cut body"):
                response = await self.carry_out(request)
            elif fault != "cut before":
                response = self.faults.refusal(fault)
            if fault == "cut body" and len(response.body) < 2:
                fault = "cut answer"
            if fault is not None:
                self.injected[fault] += 1
            if fault in ("cut before", "cut answer"):
                return self.cut(writer)
        status, body, headers = response
        lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
        length = "" if status in (204, 304) else f"Content-Length: {len(body)}\r\n"
        writer.write(
            f"HTTP/1.1 {status} {http.client.responses.get(status, '')}\r\n{''.join(lines)}{length}\r\n".encode(
                "latin-1"
            )
        )
        if status not in (204, 304):
            writer.write(body[: len(body) // 2] if fault == "cut body" else body)
        if len(body) > 2**16:
            await writer.drain()
        return self.cut(writer) if fault == "cut body" else request.headers.get("connection", "").lower() != "close"

    def cut(self, writer: asyncio.StreamWriter) -> bool:
        """Cut a connection, one time in two with a TCP reset."""
        if self.faults.random.random() < 0.5:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
        return False

    def control(self, request: Request) -> Response:
        """Change the settings, if there are any in the body, and return the counts."""
        try:
            settings = json.loads(request.body or b"{}")
            self.faults.change(settings)
        except ValueError as error:
            return _error(400, str(error))
        if settings.get("reset"):
            self.requests, self.injected = Counter(), Counter()
        return _json({"requests": self.requests, "faults": self.injected, "settings": asdict(self.faults)})


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


class StockEmulator:
    """The PyPI package gcp-storage-emulator, in memory and in a process of its own, as users start it."""

    def __enter__(self) -> Self:
        port = _free_port()
        self.url = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "gcp_storage_emulator", "start", "--in-memory", "--quiet"]
        command += ["--host=127.0.0.1", f"--port={port}"]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while True:
            with contextlib.suppress(ConnectionError), socket.create_connection(("127.0.0.1", port)):
                return self
            if self.process.poll() is not None:
                raise RuntimeError(f"gcp-storage-emulator ended with status {self.process.returncode}")
            time.sleep(0.05)

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()


class Bucket:
    """A bucket of the emulator, which runs in a process of its own while this context is open.

    `faults` are the first settings of `Faults`. With `stock`, the faults are in front of the `StockEmulator`.
    """

    def __init__(self, faults: dict[str, Any] | None = None, stock: bool = False, name: str = "bert-bucket") -> None:
        self._settings, self._stock, self.name = faults or {}, StockEmulator() if stock else None, name

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            upstream = [f"--upstream={stack.enter_context(self._stock).url}"] if self._stock else []
            command = [sys.executable, __file__, f"--bucket={self.name}", f"--parent={os.getpid()}", *upstream]
            process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
            stack.callback(process.kill)
            self.url = process.stdout.readline().strip()
            if not self.url:
                raise RuntimeError("expected the emulator to print its URL, found the end of its output")
            self.environment = {"STORAGE_EMULATOR_HOST": self.url, "TENSORSTORE_GCS_HTTP_URL": self.url}
            # With a token, gcsfs would ask Google's gRPC servers about every bucket, for up to 60 seconds.
            self.environment["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"
            self.faults(**self._settings)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def faults(self, **settings: Any) -> dict[str, Any]:
        """Change settings of `Faults`, and return all of them; `reset=True` clears the others and the counts."""
        return json.loads(self._call("POST", "/_control", json.dumps(settings).encode()))["settings"]

    def counts(self) -> dict[str, dict[str, int]]:
        """The number of "requests" by method and kind, such as "GET list", and of injected "faults" by name."""
        return json.loads(self._call("GET", "/_control"))

    def read(self, key: str) -> bytes:
        """Read an object; like all methods below, no fault is injected and nothing counted."""
        return self._call("GET", f"/download/storage/v1/b/{self.name}/o/{quote(key, safe='')}?alt=media")

    def write(self, key: str, data: bytes) -> None:
        """Write an object."""
        self._call("POST", f"/upload/storage/v1/b/{self.name}/o?uploadType=media&name={quote(key, safe='')}", data)

    def keys(self, prefix: str = "") -> list[str]:
        """List the names of all objects with a prefix."""
        return sorted(self._keys(f"/storage/v1/b/{self.name}/o?prefix={quote(prefix, safe='')}"))

    def _keys(self, path: str) -> Iterator[str]:
        page = {"nextPageToken": ""}
        while "nextPageToken" in page:
            page = json.loads(self._call("GET", f"{path}&pageToken={quote(page['nextPageToken'], safe='')}"))
            yield from (item["name"] for item in page.get("items", []))

    def delete(self, key: str) -> None:
        """Delete an object."""
        self._call("DELETE", f"/storage/v1/b/{self.name}/o/{quote(key, safe='')}")

    def _call(self, method: str, path: str, body: bytes | None = None) -> bytes:
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=60)
        with contextlib.closing(connection):
            connection.request(method, path, body, {"x-bypass-faults": "1"})
            response = connection.getresponse()
            answer = response.read()
        if response.status == 404:
            raise FileNotFoundError(path)
        if response.status >= 300:
            raise ValueError(f"expected {method} {path} to succeed, found {response.status}: {answer.decode()}")
        return answer


async def _serve(args: argparse.Namespace) -> None:
    server = Server(Forward(args.upstream) if args.upstream else Emulator())
    for name in args.bucket:
        body = json.dumps({"name": name}).encode()
        headers = {"host": "localhost", "content-type": "application/json"}
        await server.carry_out(Request("POST", "/storage/v1/b?project=test", headers, body))
    names = [each.name for each in fields(Faults)]
    server.faults.change({name: value for name, value in vars(args).items() if name in names and value is not None})
    listener = await asyncio.start_server(server.connection, "127.0.0.1", args.port, limit=2**22, backlog=1024)
    print(f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}", flush=True)
    while args.parent is None or os.getppid() == args.parent:
        await asyncio.sleep(1)


def main() -> None:
    """Run the emulator until it is killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 for a free one")
    parser.add_argument("--bucket", action="append", default=[], metavar="NAME", help="create a bucket")
    parser.add_argument("--upstream", metavar="URL", help="pass requests to another emulator")
    parser.add_argument("--parent", type=int, help="end when the parent is no longer this process")
    for each in fields(Faults):
        if type(each.default) in (int, float, str) or each.name == "expire_after":
            kind = int if each.default is None else type(each.default)
            parser.add_argument(f"--{each.name.replace('_', '-')}", type=kind, help=f"see Faults.{each.name}")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(parser.parse_args()))


if __name__ == "__main__":
    main()
