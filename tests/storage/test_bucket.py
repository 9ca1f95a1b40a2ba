"""The emulator of `bucket.py` as gcsfs, TensorStore and plain HTTP see it, with and without faults."""

import http.client
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import pytest

for _package in ("gcp_storage_emulator", "gcsfs", "tensorstore"):
    pytest.importorskip(_package)

from bucket import Bucket, StockEmulator  # noqa: E402

_OBJECTS = "/storage/v1/b/bert-bucket/o"
_BYTES = {
    "every": bytes(range(256)),
    "crlf": b"\r\n" + bytes(range(256)) + b"\r\n",
    "cr": b"x\r",
    "boundary": b"a\n--==0==--\nb\r\n--==0==\n\n",
    "empty": b"",
}


@pytest.fixture(scope="module")
def _bucket() -> Iterator[Bucket]:
    with Bucket() as opened:
        yield opened


@pytest.fixture
def bucket(_bucket: Bucket) -> Bucket:
    """An empty bucket without faults."""
    _bucket.faults(reset=True)
    for key in _bucket.keys(""):
        _bucket.delete(key)
    return _bucket


def _client(bucket: Bucket, body: str) -> Any:
    """Run the body of a function in a process whose `fs` is gcsfs and whose `kv` is TensorStore; returns its result."""
    script = f"""
        import json
        def run():
            import gcsfs, tensorstore as ts
            bucket, fs = {bucket.name!r}, gcsfs.GCSFileSystem()
            kv = ts.KvStore.open({{"driver": "gcs", "bucket": bucket, "path": ""}}).result()
            data = {_BYTES!r}
{textwrap.indent(textwrap.dedent(body), " " * 12)}
        print(json.dumps(run()))
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(command, env=os.environ | bucket.environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _request(bucket: Bucket, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(urlsplit(bucket.url).netloc, timeout=30)
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def _upload(bucket: Bucket, key: str, data: bytes, condition: str = "") -> int:
    return _request(bucket, "POST", f"/upload{_OBJECTS}?uploadType=media&name={key}{condition}", data)[0]


def test_gcsfs(bucket: Bucket):
    found = _client(
        bucket,
        """
        for name, value in data.items():
            fs.pipe_file(f"{bucket}/a/{name}", value)
            assert fs.cat_file(f"{bucket}/a/{name}") == value, name
        assert fs.cat_file(f"{bucket}/a/every", 3, 9) == data["every"][3:9]
        assert fs.cat_file(f"{bucket}/a/every", -2) == data["every"][-2:]
        fs.pipe_file(f"{bucket}/b/c/d", b"1", mode="create")
        for call in (lambda: fs.pipe_file(f"{bucket}/b/c/d", b"2", mode="create"), lambda: fs.cat_file(f"{bucket}/no")):
            try:
                call()
            except (FileExistsError, FileNotFoundError):
                continue
            raise AssertionError
        fs.pipe_file(f"{bucket}/big", data["every"] * 2500, chunksize=2**18)
        with fs.open(f"{bucket}/written", "wb", block_size=2**18) as file:
            file.write(data["every"] * 2500)
        fs.cp_file(f"{bucket}/big", f"{bucket}/copied")
        fs.rm_file(f"{bucket}/big")
        return [sorted(fs.ls(bucket)), sorted(fs.find(f"{bucket}/b")), fs.info(f"{bucket}/written")["size"]]
        """,
    )
    name = bucket.name
    assert found == [[f"{name}/a", f"{name}/b", f"{name}/copied", f"{name}/written"], [f"{name}/b/c/d"], 640_000]
    assert bucket.read("written") == bucket.read("copied") == _BYTES["every"] * 2500
    assert bucket.read("b/c/d") == b"1"
    assert {key: bucket.read(f"a/{key}") for key in _BYTES} == _BYTES


def test_tensorstore(bucket: Bucket):
    found = _client(
        bucket,
        """
        for name, value in data.items():
            kv.write(f"a/{name}", value).result()
            assert kv.read(f"a/{name}").result().value == value, name
        missing = kv.read("new").result().stamp.generation
        first = kv.write("new", b"1", if_equal=missing).result().generation
        assert kv.write("new", b"2", if_equal=missing).result().generation == b""
        assert kv.read("new", if_not_equal=first).result().state == "unspecified"
        second = kv.write("new", b"3", if_equal=first).result().generation
        assert second not in (b"", first)
        assert kv.write("new", None, if_equal=first).result().generation == b""
        kv.delete_range(ts.KvStore.KeyRange("a/b", "a/e")).result()
        return [key.decode() for key in kv.list().result()]
        """,
    )
    assert found == ["a/empty", "a/every", "new"]
    assert bucket.read("new") == b"3"


def test_pages_and_delimiter(bucket: Bucket):
    for key in ("a/1", "a/2", "b", "c/1", "d"):
        bucket.write(key, b"")
    listed, query = [], ""
    while True:
        page = json.loads(_request(bucket, "GET", f"{_OBJECTS}?delimiter=/&maxResults=2{query}")[1])
        listed.append([*page.get("prefixes", []), *(item["name"] for item in page.get("items", []))])
        if "nextPageToken" not in page:
            break
        query = f"&pageToken={page['nextPageToken']}"
    assert listed == [["a/", "b"], ["c/", "d"]]
    status, body = _request(bucket, "GET", "/storage/v1/b/no-such-bucket/o")
    assert (status, json.loads(body)["error"]["code"]) == (404, 404)
    with pytest.raises(FileNotFoundError):
        bucket.read("none")


def test_one_of_many_creators_wins(bucket: Bucket):
    with ThreadPoolExecutor(16) as pool:
        written = pool.map(lambda data: _upload(bucket, "key", data, "&ifGenerationMatch=0"), [b"1"] * 16)
    assert sorted(written) == [200] + [412] * 15


@pytest.mark.parametrize("stock", [False, True])
def test_shares_are_kept_and_counted(stock: bool):
    with Bucket({"fail": 0.1, "cut": 0.2, "seed": 1}, stock=stock) as bucket:
        seen: dict[Any, int] = {}
        for _ in range(300):
            try:
                status = _upload(bucket, "key", b"data")
            except (ConnectionError, http.client.HTTPException):
                status = "cut"
            seen[status] = seen.get(status, 0) + 1
        counts = bucket.counts()
    cuts = [counts["faults"][f"cut {when}"] for when in ("before", "answer", "body")]
    failed = [seen[status] for status in (503, 429, 408)]
    assert counts["requests"] == {"POST upload": 300}
    assert 40 <= seen["cut"] == sum(cuts) <= 80
    assert 15 <= sum(failed) <= 45
    assert [counts["faults"][str(status)] for status in (503, 429, 408)] == failed
    assert abs(cuts[0] - cuts[1] - cuts[2]) < 25


@pytest.mark.parametrize("when", ["before", "answer", "body"])
def test_a_cut_after_execution_carries_the_request_out(bucket: Bucket, when: str):
    bucket.faults(cut=1, cut_when=when, limit=1)
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        _upload(bucket, "key", b"data")
    assert bucket.keys() == ([] if when == "before" else ["key"])
    assert _upload(bucket, "key", b"data", "&ifGenerationMatch=0") == (200 if when == "before" else 412)


def test_refusals(bucket: Bucket):
    bucket.write("key", b"data")
    path = f"{_OBJECTS}/key"
    bucket.faults(expire=1)
    status, body = _request(bucket, "GET", path)
    assert (status, json.loads(body)["error"]["message"]) == (401, "Invalid Credentials")
    assert _request(bucket, "GET", path, Authorization="Bearer old")[0] == 200
    bucket.faults(expire_after=1)
    found = [_request(bucket, "GET", path, Authorization=f"Bearer {token}")[0] for token in ("old", "old", "new")]
    assert found == [200, 401, 200]
    bucket.faults(reset=True, denied="^GET .*/key", quota=403)
    assert [_request(bucket, "GET", path)[0], _upload(bucket, "new", b"")] == [403, 403]
    bucket.faults(quota=429)
    assert _upload(bucket, "new", b"") == 429
    assert bucket.counts()["faults"] == {"403": 1, "quota": 2}
    with pytest.raises(ValueError, match="expected settings among"):
        bucket.faults(failure=1)


def test_clients_recover(bucket: Bucket):
    """Both clients retry a read that fails or is cut, and a chunk of a resumable upload whose answer is lost."""
    bucket.write("key", b"data" * 1000)
    bucket.faults(fail=1, limit=1)
    assert _client(bucket, "return kv.read('key').result().value.decode()") == "data" * 1000
    bucket.faults(fail=0, cut=1, cut_when="answer", limit=1, match="upload_id")
    _client(bucket, "fs.pipe_file(f'{bucket}/big', data['every'] * 2500, chunksize=2**18)")
    assert bucket.read("big") == _BYTES["every"] * 2500
    assert bucket.counts()["faults"] == {"503": 1, "cut answer": 1}


def test_stock_emulator():
    with StockEmulator() as emulator:
        connection = http.client.HTTPConnection(urlsplit(emulator.url).netloc)
        connection.request("GET", "/")
        assert connection.getresponse().read() == b"OK"
