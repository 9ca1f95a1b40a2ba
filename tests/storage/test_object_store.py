"""Failing stores: what is repeated, what is counted, and the one line that a user reads in the end."""

import logging
import os
import random
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path as LocalPath

import pytest
from bucket import Bucket
from gcsfs.retry import HttpError

from bert_jax import storage
from bert_jax.cli import main
from bert_jax.storage import Path, object_store

_EXPIRED_FOR_GOOD = 10**6  # requests


@pytest.fixture
def root(bucket: Bucket) -> Path:
    """The bucket, with a file in it, after the one request that finds out whether it is there."""
    path = Path(f"gs://{bucket.name}")
    bucket.write("file", b"here")
    object_store.check_bucket(path.url)
    return path


@pytest.mark.parametrize("seed", [0, 1])
def test_a_store_that_fails_in_a_fifth_of_its_requests_ends_with_the_right_objects(
    bucket: Bucket, root: Path, tmp_path: LocalPath, seed: int
) -> None:
    bucket.faults(fail=0.1, cut=0.1, seed=seed)
    draw, expected = random.Random(seed), {"file": b"here"}
    for step in range(120):
        name = f"{draw.choice('abc')}/{draw.randrange(8)}"
        match draw.randrange(7):
            case 0 | 1:
                expected[name] = draw.randbytes(draw.choice((0, 10, 5000)))
                (root / name).write_bytes(expected[name])
            case 2:
                (root / name).unlink()
                expected.pop(name, None)
            case 3:
                data = b"created %d" % step
                assert (root / name).create(data) == (name not in expected)
                expected.setdefault(name, data)
            case 4:
                assert (root / name).exists() == (name in expected)
                if name in expected:
                    assert (root / name).read_bytes() == expected[name]
                    assert (root / name).open("rb").read() == expected[name]
            case 5:
                below = {f"gs://{bucket.name}/{each}" for each in expected if each.startswith(name[:2])}
                assert {str(file) for file in (root / name[0]).files_below()} == below
            case 6:
                with storage.directory_atomically(root / f"folder{step}") as folder:
                    for part in ("config.json", "sub/weights"):
                        expected[f"folder{step}/{part}"] = draw.randbytes(2000)
                        (folder / part).parent.mkdir(exist_ok=True)
                        (folder / part).write_bytes(expected[f"folder{step}/{part}"])
    (root / "a").rmtree(missing_ok=True)
    large = draw.randbytes(6 << 20)  # a resumable upload
    (tmp_path / "large").write_bytes(large)
    (root / "large").upload(tmp_path / "large")
    with storage.local_copy(root / "large") as copy:
        assert LocalPath(copy).read_bytes() == large
    expected = {name: data for name, data in expected.items() if not name.startswith("a/")} | {"large": large}
    assert {name: bucket.read(name) for name in sorted(bucket.keys())} == expected
    assert sum(bucket.counts()["faults"].values()) > 20


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("when", ["before", "answer", "body"])
@pytest.mark.parametrize(
    ("verb", "action", "left"),
    [
        ("DELETE", lambda path: path.unlink(), None),
        ("DELETE", lambda path: path.rmtree(), None),
        ("POST", lambda path: path.write_bytes(b"new"), b"new"),
        ("POST", lambda path: path.rename(str(path) + "2"), None),
        ("GET", lambda path: path.read_bytes(), b"here"),
        ("GET", lambda path: path.open("rb").read(), b"here"),
        ("GET", lambda path: path.files_below(), b"here"),
        ("GET", lambda path: path.exists(), b"here"),
    ],
    ids=["unlink", "rmtree", "write", "rename", "read", "open", "list", "exists"],
)
def test_a_connection_that_is_cut_is_no_error(
    bucket: Bucket, root: Path, verb: str, action: Callable, left: bytes | None, when: str, times: int
) -> None:
    bucket.faults(cut=1.0, cut_when=when, match=f"^{verb}", limit=times)
    action(root / "file")
    assert list(map(bucket.read, filter("file".__eq__, bucket.keys()))) == ([] if left is None else [left])
    assert sum(bucket.counts()["faults"].values()) == times


def test_a_creation_whose_answer_was_lost_has_succeeded(bucket: Bucket, root: Path) -> None:
    bucket.faults(cut=1.0, cut_when="answer", match="^POST", limit=1)
    assert (root / "new").create(b"mine")
    assert not (root / "new").create(b"other") and bucket.read("new") == b"mine"


def test_a_store_that_is_out_for_longer_than_gcsfs_waits_is_waited_for(bucket: Bucket, root: Path) -> None:
    bucket.faults(fail=1.0, limit=8)  # gcsfs gives up after six
    assert (root / "file").read_bytes() == b"here"


def test_requests_and_failures_are_counted(bucket: Bucket, root: Path) -> None:
    before = storage.request_counts()
    (root / "a").write_bytes(b"")
    (root / "a").read_bytes()
    after = storage.request_counts()
    assert (after.requests - before.requests, after.retries - before.retries) == (2, 0)
    bucket.faults(fail=1.0, limit=3)
    (root / "a").read_bytes()
    bucket.faults(reset=True, cut=1.0, cut_when="answer", limit=1)
    (root / "a").write_bytes(b"")  # aiohttp itself repeats a GET, which is not counted
    last = storage.request_counts()
    assert (last.requests - after.requests, last.retries - after.retries) == (6, 4)


def test_what_tensorstore_asks_for_is_counted(bucket: Bucket, root: Path) -> None:
    tensorstore = pytest.importorskip("tensorstore")
    store = tensorstore.KvStore.open({"driver": "gcs", "bucket": bucket.name, "path": ""}).result()
    before = storage.request_counts()
    bucket.faults(fail=1.0, fail_status=[503], limit=1)
    assert store.read("file").result().value == b"here"
    after = storage.request_counts()
    assert (after.requests - before.requests, after.retries - before.retries) == (2, 1)


def test_an_expired_token_is_replaced(bucket: Bucket, root: Path) -> None:
    bucket.faults(expire=1)  # "Invalid Credentials", which gcsfs itself tries again
    assert (root / "file").read_bytes() == b"here"


class _Credentials:
    """Of google.auth, as far as they are used; `ends` raises when new ones cannot be had."""

    def __init__(self, ends: bool = False):
        self.ends, self.refreshed = ends, 0

    def refresh(self, _request: object) -> None:
        self.refreshed += 1
        if self.ends:
            raise ValueError("no account")


@pytest.mark.parametrize("ends", [False, True])
def test_credentials_that_are_refused_in_other_words_are_refreshed(
    root: Path, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    credentials = _Credentials(ends)
    store = object_store.filesystem(root.url)
    monkeypatch.setattr(store, "credentials", types.SimpleNamespace(credentials=credentials))

    def refused_at_first(_store: object) -> str:
        if credentials.refreshed == 0 or ends:
            raise HttpError({"code": 401, "message": "Request had invalid authentication credentials."})
        return "read"

    if ends:
        with pytest.raises(PermissionError, match="credentials were refused"):
            object_store.attempt(root.url, refused_at_first)
    else:
        assert object_store.attempt(root.url, refused_at_first) == "read"
    assert credentials.refreshed == 1


_QUOTA = "The project exceeded its quota for uploads."
_FAILURES = [  # faults, error, in its text
    ({"expire": _EXPIRED_FOR_GOOD}, PermissionError, "the credentials were refused (Invalid Credentials, 401)"),
    ({"denied": "."}, PermissionError, "access denied: test@example.com does not have permission"),
    ({"quota": 429}, OSError, _QUOTA),
    ({"quota": 403}, PermissionError, f"access denied: {_QUOTA}"),
    ({"fail": 1.0, "fail_status": [503]}, OSError, "internal error"),
    ({"cut": 1.0, "cut_when": "before"}, OSError, ""),
]
_NAMES = ["expired", "denied", "quota 429", "quota 403", "out", "cut off"]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("faults", "kind", "text"), _FAILURES, ids=_NAMES)
def test_a_store_that_fails_for_good_is_one_error_with_the_url_and_one_line(
    bucket: Bucket, root: Path, faults: dict, kind: type[OSError], text: str
) -> None:
    bucket.faults(**faults)
    with pytest.raises(kind) as caught:
        (root / "sub" / "new").write_bytes(b"x")
    assert caught.value.filename == f"gs://{bucket.name}/sub/new"
    assert text in caught.value.strerror and caught.value.strerror and "\n" not in caught.value.strerror
    assert caught.value.errno


@pytest.mark.parametrize(
    "action",
    [
        lambda path: path.exists(),
        lambda path: path.read_bytes(),
        lambda path: path.write_bytes(b""),
        lambda path: path.create(b""),
        lambda path: path.files_below(),
        lambda path: path.open("rb"),
        lambda path: list(path.iterdir()),
        lambda path: storage.matching_files(f"{path}/*"),
        lambda path: path.mkdir(),
        storage.check_writable,
        storage.existing,
    ],
)
def test_a_missing_bucket_is_named(bucket: Bucket, action: Callable) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        action(Path("gs://no-such-bucket/sub/file"))
    assert (caught.value.filename, caught.value.strerror) == ("gs://no-such-bucket", "no such bucket")


def test_the_name_of_a_file_can_be_read_where_listing_is_denied(bucket: Bucket, root: Path) -> None:
    bucket.faults(denied=r"^GET .*/o\?")
    assert (root / "file").read_bytes() == b"here" and (root / "file").exists()
    with pytest.raises(PermissionError):
        (root / "file").files_below()
    object_store._check_bucket.cache_clear()
    with pytest.raises(FileNotFoundError, match="no such file or directory"):
        (root / "missing").read_bytes()


@pytest.fixture
def corpus(tmp_path: LocalPath) -> LocalPath:
    path = tmp_path / "corpus.txt"
    path.write_text("the cat sat on the mat\nthe dog ran in the park\n\n" * 20)
    return path


@pytest.fixture
def unlogged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fails the test when a record was logged that Python would print on stderr."""
    yield
    records = [record for record in caplog.get_records("call") if record.levelno >= logging.WARNING]
    # Those of gcsfs go nowhere, though pytest collects them.
    assert [record.getMessage() for record in records if record.name != "gcsfs"] == []


def _one_line(capsys: pytest.CaptureFixture, *argv: object) -> str:
    """What a command that must fail says on stderr, without its name."""
    status = main([str(word) for word in argv])
    lines = capsys.readouterr().err.splitlines()
    assert status == 2 and len(lines) == 1, lines
    return lines[0].removeprefix("bert-jax: ")


@pytest.mark.sampled(3)
@pytest.mark.usefixtures("unlogged")
@pytest.mark.parametrize(("faults", "kind", "text"), _FAILURES, ids=_NAMES)
def test_a_command_that_cannot_write_says_so_in_one_line(
    bucket: Bucket, root: Path, corpus: LocalPath, capsys: pytest.CaptureFixture, faults: dict, kind: type, text: str
) -> None:
    bucket.faults(**faults)
    line = _one_line(capsys, "train-tokenizer", corpus, "--vocab-size", 60, "--out", root / "tokenizer")
    assert line.startswith(f"gs://{bucket.name}/tokenizer") and text in line


@pytest.mark.usefixtures("unlogged")
@pytest.mark.parametrize(
    "argv",
    [
        ("inspect", "{}/model"),
        ("fill-mask", "{}/model", "the [MASK] sat"),
        ("convert", "{}/model", "new"),
        ("train-tokenizer", "{}/corpus.txt", "--out", "new"),
        ("train-tokenizer", "{}/*.txt", "--out", "new"),
    ],
    ids=["inspect", "fill-mask", "convert", "train-tokenizer", "pattern"],
)
def test_a_command_that_cannot_read_says_so_in_one_line(
    bucket: Bucket, capsys: pytest.CaptureFixture, tmp_path: LocalPath, monkeypatch: pytest.MonkeyPatch, argv: tuple
) -> None:
    monkeypatch.chdir(tmp_path)
    bucket.write("model/config.json", b"{}")

    def line(root: str) -> str:
        return _one_line(capsys, *(word.format(root) for word in argv))

    assert line("gs://no-such-bucket") == "gs://no-such-bucket: no such bucket"
    url = f"gs://{bucket.name}"
    assert line(f"{url}/missing").startswith(f"{url}/missing/")
    bucket.faults(denied=".")
    assert f"{url}" in (said := line(url)) and "access denied: test@example.com does not have permission" in said
    bucket.faults(reset=True, expire=_EXPIRED_FOR_GOOD)
    assert f"{url}" in (said := line(url)) and "the credentials were refused (Invalid Credentials, 401)" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_nothing_else_is_printed_by_libraries(bucket: Bucket, root: Path) -> None:
    """In a process of its own, with what asyncio, aiohttp and gcsfs log and print at its end."""
    bucket.faults(fail=1.0, fail_status=[400])  # gcsfs logs it with a traceback, and does not try again
    command = [sys.executable, "-m", "bert_jax", "inspect", str(root / "model")]
    done = subprocess.run(command, env=os.environ | bucket.environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1), done.stderr
    assert done.stderr.startswith(f"bert-jax: gs://{bucket.name}/model: We encountered an internal error.")
