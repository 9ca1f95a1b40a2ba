"""Claims: one process at a time in a directory, on a disk and in a bucket."""

import contextlib
import dataclasses
import getpass
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path as LocalPath

import pytest
from bucket import Bucket

from bert_jax import storage
from bert_jax.errors import InputError
from bert_jax.storage import Path, claims

_BEAT, _STALE = 0.1, 1.0


@pytest.fixture(autouse=True)
def _short_beats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "BEAT_SECONDS", _BEAT)
    monkeypatch.setattr(claims, "STALE_SECONDS", _STALE)
    monkeypatch.setattr(claims, "_SETTLE_SECONDS", 0.05)


@pytest.fixture
def directory(root: Path) -> Path:
    """A directory that exists, on a disk and in a bucket."""
    root.mkdir(parents=True, exist_ok=True)
    return root


@pytest.fixture
def remote(bucket: Bucket) -> Path:
    return Path(f"gs://{bucket.name}/work")


def _lease(bucket: Bucket, number: int) -> dict:
    return json.loads(bucket.read(f"work/.lease/{number}.json"))


def _numbers(bucket: Bucket) -> list[str]:
    return [name.removeprefix("work/.lease/") for name in bucket.keys("work/.lease/")]


def _write_lease(bucket: Bucket, number: int, **changes: object) -> dict:
    """The lease of a process of another machine."""
    owner = dataclasses.asdict(claims._Owner.this_process()) | {"machine": "another", "host": "far", "pid": 7}
    bucket.write(f"work/.lease/{number}.json", json.dumps(owner | changes).encode())
    return owner | changes


def test_a_claimed_directory_is_refused_to_others_until_it_is_released(directory: Path) -> None:
    for _ in range(3):
        with storage.claimed(directory, "busy") as claim:
            claim.check()
            for _ in range(2):
                with pytest.raises(InputError, match=r"^busy"), storage.claimed(directory, "busy"):
                    pytest.fail("two were let in")
            claim.check()


def test_a_claim_ends_with_an_exception_in_its_block(directory: Path) -> None:
    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error), storage.claimed(directory, "busy"):
            raise error
    with storage.claimed(directory, "busy"):
        pass


def test_claims_of_two_directories_do_not_meet(directory: Path) -> None:
    (directory / "a").mkdir(exist_ok=True)
    (directory / "b").mkdir(exist_ok=True)
    with storage.claimed(directory / "a", "busy"), storage.claimed(directory / "b", "busy"):
        pass


def test_who_comes_second_is_told_who_was_first_within_a_few_beats(remote: Path) -> None:
    with storage.claimed(remote, "busy"):
        begun = time.monotonic()
        with pytest.raises(InputError) as caught, storage.claimed(remote, "gs://x: another run"):
            pass
        assert time.monotonic() - begun < _STALE
    year = time.strftime("%Y-", time.gmtime())
    who = f"process {os.getpid()} of {getpass.getuser()} on {socket.gethostname()}, since {year}"
    assert str(caught.value).startswith(f"gs://x: another run ({who}") and str(caught.value).endswith(" UTC)")


def test_a_released_lease_is_taken_at_once_and_numbers_grow(bucket: Bucket, remote: Path) -> None:
    for number in range(1, 8):
        begun = time.monotonic()
        with storage.claimed(remote, "busy"):
            assert _lease(bucket, number)["released"] is False
        assert time.monotonic() - begun < _STALE / 2
        assert _lease(bucket, number)["released"] is True
    assert _numbers(bucket) == ["7.json"]  # older ones are removed


def test_a_lease_is_renewed_every_beat(bucket: Bucket, remote: Path) -> None:
    with storage.claimed(remote, "busy"):
        time.sleep(5 * _BEAT)
        assert _lease(bucket, 1)["beat"] >= 2


_CLAIMING = """
    import os, sys, time
    from bert_jax import storage
    from bert_jax.storage import claims
    claims.BEAT_SECONDS, claims.STALE_SECONDS, claims._SETTLE_SECONDS = {beat}, {stale}, 0.05
    with storage.claimed({url!r}, "busy") as claim:
        print("claimed", flush=True)
        sys.stdin.readline()
        try:
            claim.check()
            print("kept", flush=True)
        except Exception as error:
            print(type(error).__name__, error, flush=True)
"""


@contextlib.contextmanager
def _other_process(bucket: Bucket, url: str) -> Iterator[subprocess.Popen]:
    """A process that has claimed a URL, and checks its claim when it reads a line."""
    script = textwrap.dedent(_CLAIMING.format(beat=_BEAT, stale=_STALE, url=url))
    command, pipes = [sys.executable, "-c", script], {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env=os.environ | bucket.environment, text=True, **pipes) as process:
        try:
            assert process.stdout.readline() == "claimed\n"
            yield process
        finally:
            process.kill()


def test_the_lease_of_a_killed_process_of_this_machine_is_taken_at_once(
    bucket: Bucket, remote: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _other_process(bucket, remote.url) as process:
        with pytest.raises(InputError, match=rf"busy .process {process.pid} of "), storage.claimed(remote, "busy"):
            pass
        process.send_signal(signal.SIGKILL)
        process.wait()
        monkeypatch.setattr(claims, "STALE_SECONDS", 60.0)
        begun = time.monotonic()
        with storage.claimed(remote, "busy"):
            assert time.monotonic() - begun < 2
        assert _numbers(bucket) == ["2.json"]


def test_a_process_that_stood_still_finds_that_its_lease_is_lost_and_does_not_take_it_back(
    bucket: Bucket, remote: Path
) -> None:
    with _other_process(bucket, remote.url) as process:
        process.send_signal(signal.SIGSTOP)
        with storage.claimed(remote, "busy") as claim:
            process.stdin.write("\n")
            process.stdin.flush()
            process.send_signal(signal.SIGCONT)
            said = process.stdout.readline()  # at once, before the next beat
            assert said.startswith(f"InputError {remote}: this process was suspended, and process")
            assert process.wait(10) == 0
            time.sleep(2 * _BEAT)
            claim.check()
        assert _lease(bucket, 2)["pid"] == os.getpid() and _lease(bucket, 2)["released"]


@pytest.mark.parametrize("beats", [True, False], ids=["alive", "dead"])
def test_the_lease_of_another_machine_is_taken_only_after_a_time_without_a_beat(
    bucket: Bucket, remote: Path, beats: bool
) -> None:
    _write_lease(bucket, 4)
    timer = threading.Timer(_STALE * 0.6, lambda: _write_lease(bucket, 4, beat=1) if beats else None)
    timer.start()
    begun = time.monotonic()
    if beats:
        with pytest.raises(InputError, match=r"busy .process 7 of .* on far, since"), storage.claimed(remote, "busy"):
            pass
        assert _numbers(bucket) == ["4.json"]
    else:
        with storage.claimed(remote, "busy"):
            assert time.monotonic() - begun >= _STALE
        assert _numbers(bucket) == ["5.json"]
    timer.join()


def test_a_lease_that_is_released_while_it_is_watched_is_taken(bucket: Bucket, remote: Path) -> None:
    _write_lease(bucket, 1)
    timer = threading.Timer(_STALE / 4, lambda: _write_lease(bucket, 1, beat=-1, released=True))
    timer.start()
    begun = time.monotonic()
    with storage.claimed(remote, "busy"):
        assert time.monotonic() - begun < _STALE
    timer.join()


def test_a_lease_that_cannot_be_read_does_not_keep_anybody_out(bucket: Bucket, remote: Path) -> None:
    bucket.write("work/.lease/3.json", b"{")
    bucket.write("work/.lease/note.txt", b"")
    with storage.claimed(remote, "busy"):
        assert "4.json" in _numbers(bucket)


def test_an_owner_whose_lease_was_taken_over_is_told_and_leaves_the_new_one_alone(bucket: Bucket, remote: Path) -> None:
    with storage.claimed(remote, "busy") as claim:
        taken = _write_lease(bucket, 2)
        time.sleep(4 * _BEAT)
        with pytest.raises(InputError, match=r"process 7 of .* on far.* took it over"):
            claim.check()
    assert _lease(bucket, 2) == taken


def test_faults_during_beats_do_not_lose_the_lease(bucket: Bucket, remote: Path) -> None:
    with storage.claimed(remote, "busy") as claim:
        bucket.faults(fail=0.3, cut=0.2)
        time.sleep(8 * _BEAT)
        claim.check()
        with pytest.raises(InputError, match="busy"), storage.claimed(remote, "busy"):
            pass
        bucket.faults(denied=".")  # longer than any process waits: unknown is not lost
        time.sleep(_STALE + 2 * _BEAT)
        claim.check()
        bucket.faults(reset=True)
        time.sleep(4 * _BEAT)
        claim.check()
        assert _lease(bucket, 1)["beat"] > 2
    assert _lease(bucket, 1)["released"]


def test_a_store_that_is_out_at_the_end_holds_nobody_for_long(
    bucket: Bucket, remote: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bert_jax.storage.object_store._FIRST_WAIT", 1.0)  # then 2 and 4
    with storage.claimed(remote, "busy"):
        monkeypatch.setattr(claims, "STALE_SECONDS", 0.2)
        bucket.faults(quota=429)
        begun = time.monotonic()
    assert time.monotonic() - begun < 1.5
    bucket.faults(reset=True)
    for thread in threading.enumerate():
        if thread.name == "lease":
            thread.join()
    assert _lease(bucket, 1)["released"]


def _race(url: str, number: int) -> list[str]:
    """How each of several threads fared that claimed a URL at the same time, and held it for a while."""
    results, inside, start = [], [], threading.Barrier(number)

    def run() -> None:
        start.wait()
        try:
            with storage.claimed(url, "busy") as claim:
                inside.append(1)
                results.append("alone" if len(inside) == 1 else "crowded")
                time.sleep(1)
                claim.check()
                inside.pop()
        except InputError as error:
            results.append(str(error).partition(" ")[0])

    threads = [threading.Thread(target=run) for _ in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(results)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("before", ["nothing", "released", "dead"])
def test_of_many_threads_one_gets_the_lease(bucket: Bucket, remote: Path, before: str) -> None:
    if before != "nothing":
        _write_lease(bucket, 1, released=before == "released")
    assert _race(remote.url, 8) == ["alone"] + ["busy"] * 7


@pytest.mark.slow
def test_of_many_threads_one_gets_the_lease_in_a_store_that_ignores_preconditions() -> None:
    pytest.importorskip("gcp_storage_emulator", reason="needs the package gcp-storage-emulator")
    script = f"""
        import sys
        sys.path[:0] = {[str(LocalPath(__file__).parent), str(LocalPath(__file__).parents[1])]!r}
        from test_claims import _race, claims
        claims.BEAT_SECONDS, claims.STALE_SECONDS, claims._SETTLE_SECONDS = 0.3, 5.0, 1.5
        print(*_race("gs://bert-bucket/work", 4))
    """
    with Bucket(stock=True) as bucket:  # in a process of its own, as the clients read the emulator's address once
        command = [sys.executable, "-c", textwrap.dedent(script)]
        done = subprocess.run(command, env=os.environ | bucket.environment, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["alone", "busy", "busy", "busy"], done.stderr


def test_a_claim_of_a_local_directory_ends_with_its_process(tmp_path: LocalPath) -> None:
    script = f"""
        import sys
        from bert_jax import storage
        with storage.claimed({str(tmp_path)!r}, "busy"):
            print("claimed", flush=True)
            sys.stdin.readline()
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "claimed\n"
        with pytest.raises(InputError, match=r"^busy$"), storage.claimed(tmp_path, "busy"):
            pass
        process.kill()
        process.wait()
        with storage.claimed(tmp_path, "busy"):
            assert list(tmp_path.iterdir()) == []  # a lock leaves no file
