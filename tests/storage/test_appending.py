"""Files that grow while others read them."""

import threading
import time

import pytest
from bucket import Bucket

from bert_jax import storage
from bert_jax.storage import Path, appending


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appending, "UPLOAD_SECONDS", 0.1)


@pytest.fixture
def file(root: Path) -> Path:
    return root / "sub" / "metrics.jsonl"


def _wait_for(path: Path, data: bytes, seconds: float = 3.0) -> None:
    deadline = time.monotonic() + seconds
    while (found := path.read_bytes()) != data:
        assert data.startswith(found), "not a beginning of what was appended"
        assert time.monotonic() < deadline, f"expected {data!r}, found {found!r}"
        time.sleep(0.02)


@pytest.mark.parametrize("initial", [b"", b"resumed\n"])
def test_a_file_begins_with_what_it_is_given_in_place_of_what_was_there(file: Path, initial: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"much that was there before")
    growing = storage.GrowingFile(file, initial)
    assert file.read_bytes() == initial
    growing.close()
    assert file.read_bytes() == initial


def test_what_is_appended_can_be_read_before_the_file_is_closed(file: Path) -> None:
    growing = storage.GrowingFile(file, b"0")
    for expected in (b"01", b"012", b"0123"):
        growing.append(expected[-1:])
        if file.is_remote:
            _wait_for(file, expected)
        else:
            assert file.read_bytes() == expected
    growing.close()


@pytest.mark.parametrize("end", ["flush", "close"])
def test_all_can_be_read_after(file: Path, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    monkeypatch.setattr(appending, "UPLOAD_SECONDS", 60.0)
    growing = storage.GrowingFile(file)
    for part in (b"a\n", b"", b"b\n" * 1000):
        growing.append(part)
    getattr(growing, end)()
    assert file.read_bytes() == b"a\n" + b"b\n" * 1000
    growing.close()


def test_nothing_is_written_again_that_has_not_changed(bucket: Bucket) -> None:
    growing = storage.GrowingFile(f"gs://{bucket.name}/file", b"a")
    growing.flush()
    time.sleep(0.3)
    growing.close()
    assert bucket.counts()["requests"]["POST upload"] == 1


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", [{"denied": "^POST"}, {"quota": 429}, {"fail": 1.0}, {"cut": 1.0}], ids=str)
def test_uploads_that_fail_are_made_up_for(bucket: Bucket, kind: dict, caplog: pytest.LogCaptureFixture) -> None:
    path = Path(f"gs://{bucket.name}/file")
    growing = storage.GrowingFile(path, b"0")
    bucket.faults(**kind, match="^POST")
    growing.append(b"1")
    deadline = time.monotonic() + 10
    while "the upload will be repeated" not in caplog.text:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert bucket.read("file") in (b"0", b"01")
    bucket.faults(reset=True)
    growing.append(b"2")
    _wait_for(path, b"012")
    growing.close()


def test_a_failure_at_the_end_is_an_error(bucket: Bucket) -> None:
    growing = storage.GrowingFile(f"gs://{bucket.name}/file")
    growing.append(b"1")
    bucket.faults(denied="^POST")
    for end in (growing.flush, growing.close):
        with pytest.raises(PermissionError, match="access denied"):
            end()


def test_a_reader_never_sees_it_shrink(file: Path) -> None:
    growing, ended, sizes = storage.GrowingFile(file), threading.Event(), [0]

    def read() -> None:
        while not ended.is_set():
            sizes.append(len(file.read_bytes()))

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(300):
        growing.append(b"x" * 100)
        if number % 50 == 0:
            growing.flush()
        time.sleep(0.003)
    growing.close()
    ended.set()
    reader.join()
    assert sizes == sorted(sizes) and len(set(sizes)) > 5
    assert file.read_bytes() == b"x" * 30_000
