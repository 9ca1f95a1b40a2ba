"""Files and directories that appear whole or not at all, whatever happens while they are written."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path as LocalPath

import pytest
from bucket import Bucket

from bert_jax import storage
from bert_jax.errors import InputError
from bert_jax.storage import Path, claims
from bert_jax.storage.writing import INCOMPLETE

_KILLS = [KeyboardInterrupt, SystemExit, GeneratorExit]
_DIRECTORIES = [storage.directory_atomically, storage.directory_resumably]


@pytest.fixture(autouse=True)
def _short_beats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "BEAT_SECONDS", 0.1)
    monkeypatch.setattr(claims, "STALE_SECONDS", 1.0)
    monkeypatch.setattr(claims, "_SETTLE_SECONDS", 0.01)


def _files(directory: Path) -> dict[str, bytes]:
    """The contents of all files below, without leases."""
    files = {str(file.relative_to(directory)): file.read_bytes() for file in directory.files_below()}
    return {name: data for name, data in files.items() if not name.startswith(claims.LEASES)}


def _remove_all(directory: Path) -> None:
    """What the writer of a directory gives to remove what it wrote, if it wrote all there is."""
    for file in directory.files_below():
        if file.name != INCOMPLETE and claims.LEASES not in file.parts:
            file.unlink()


def _fill(directory: Path, text: str = "") -> dict[str, bytes]:
    """Writes a model directory; returns what is in it."""
    contents = {
        name: f"{name} {text}".encode() for name in ("a", "config.json", "manifest.json", "sub/config.json", "z")
    }
    for name, data in contents.items():
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_bytes(data)
    return contents


@pytest.fixture
def uploads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The names of objects in the order in which they were written; one whose name is in `killed_at` raises."""

    class Uploads(list):
        killed_at: tuple[str, type[BaseException]] | None = None

    written = Uploads()

    def watched(method: Callable) -> Callable:
        def call(self: Path, *args: object) -> object:
            if self.is_remote:
                written.append(self.name)
                if written.killed_at and self.name == written.killed_at[0]:
                    raise written.killed_at[1]
            return method(self, *args)

        return call

    for name in ("upload", "write_bytes"):
        monkeypatch.setattr(Path, name, watched(getattr(Path, name)))
    return written


@pytest.mark.parametrize("error", [ValueError, OSError, *_KILLS])
@pytest.mark.parametrize(
    ("opened", "old", "new"),
    [(storage.open_atomically, "old Ä", "new Ä"), (storage.open_binary_atomically, b"old", b"new")],
    ids=["text", "bytes"],
)
def test_a_file_is_the_old_one_until_it_is_complete(
    root: Path, error: type[BaseException], opened: Callable, old: str | bytes, new: str | bytes
) -> None:
    root.mkdir(exist_ok=True)
    file = root / "file"

    def found() -> str | bytes:
        return file.read_text() if isinstance(old, str) else file.read_bytes()

    with opened(file) as writing:
        writing.write(old)
        writing.flush()
        assert not file.exists()
    assert found() == old
    with pytest.raises(error), opened(file) as writing:
        writing.write(new)
        writing.flush()
        assert found() == old
        raise error
    assert found() == old and root.files_below() == [file]
    with opened(file) as writing:
        writing.write(new)
    assert found() == new and root.files_below() == [file]


@pytest.mark.parametrize("data", ["", "text Ä", b"", b"\x00\xff", b"x" * 6_000_000], ids=len)
def test_a_file_is_written_from_text_or_bytes(root: Path, data: str | bytes) -> None:
    root.mkdir(exist_ok=True)
    for content in (b"before", data):
        storage.write_atomically(str(root / "file"), content)
    assert (root / "file").read_bytes() == (data.encode() if isinstance(data, str) else data)
    assert root.files_below() == [root / "file"]


def test_an_error_names_the_file_and_not_the_one_beside_it(root: Path) -> None:
    root.mkdir(exist_ok=True)
    with pytest.raises(OSError) as caught, storage.open_atomically(root / "file") as writing:
        raise OSError(28, "No space left on device", writing.name)
    assert caught.value.filename == str(root / "file")
    with pytest.raises(OSError) as caught, storage.directory_atomically(root / "new") as directory:
        raise OSError(28, "No space left on device", str(directory / "weights"))
    assert caught.value.filename == str(root / "new" / "weights")


@pytest.mark.parametrize("write", _DIRECTORIES)
def test_a_directory_holds_what_was_written_into_it(root: Path, write: Callable) -> None:
    with write(root / "new") as directory:
        contents = _fill(directory)
    assert _files(root / "new") == contents
    assert {str(file.relative_to(root)).split("/")[0] for file in root.files_below()} == {"new"}


def test_a_directory_is_not_there_before_its_block_ends(root: Path) -> None:
    with storage.directory_atomically(root / "new") as directory:
        _fill(directory)
        assert not (root / "new").exists()


@pytest.mark.parametrize("error", [ValueError, InputError, *_KILLS])
def test_a_directory_whose_block_fails_is_not_there(root: Path, error: type[BaseException]) -> None:
    with pytest.raises(error), storage.directory_atomically(root / "new") as directory:
        _fill(directory)
        raise error
    assert root.files_below() == []


@pytest.mark.parametrize("write", _DIRECTORIES)
def test_a_directory_with_files_in_it_is_refused_and_left_alone(root: Path, write: Callable) -> None:
    for name in ("used/a", "file"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"mine")
        with pytest.raises(InputError, match="expected a new or empty directory"), write(root / name.split("/")[0]):
            pytest.fail("it was written to")
    assert _files(root) == {"used/a": b"mine", "file": b"mine"}


@pytest.mark.parametrize("write", _DIRECTORIES)
def test_an_empty_directory_is_written_to(root: Path, write: Callable, request: pytest.FixtureRequest) -> None:
    if root.is_remote:
        request.getfixturevalue("bucket").write("root/new/", b"")  # as the web console makes it
    else:
        (root / "new").mkdir()
    with write(root / "new") as directory:
        contents = _fill(directory)
    assert _files(root / "new") == contents


def test_a_resumable_directory_is_given_up_by_an_error_and_kept_by_a_kill(root: Path) -> None:
    for kill in _KILLS:
        with pytest.raises(kill), storage.directory_resumably(root / "new", _remove_all) as directory:
            (directory / kill.__name__).write_bytes(b"part")
            raise kill
        if root.is_remote:
            assert (root / "new" / INCOMPLETE).exists()
        else:
            assert not (root / "new").exists()
    with pytest.raises(ValueError), storage.directory_resumably(root / "new", _remove_all) as directory:
        assert {name for name in _files(directory) if name != INCOMPLETE} == {kill.__name__ for kill in _KILLS}
        raise ValueError
    assert _files(root / "new") == {} and (root.is_remote or list(root.iterdir()) == [])
    with storage.directory_resumably(root / "new") as directory:
        assert set(_files(directory)) <= {INCOMPLETE}
        contents = _fill(directory)
    assert _files(root / "new") == contents


def test_two_processes_do_not_write_one_resumable_directory(root: Path) -> None:
    with storage.directory_resumably(root / "new") as directory:
        busy = pytest.raises(InputError, match="another process is writing there")
        with busy, storage.directory_resumably(root / "new"):
            pytest.fail("two were let in")
        contents = _fill(directory)
    assert _files(root / "new") == contents


def test_a_directory_that_was_completed_while_its_lease_was_awaited_is_refused(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait = claims._Lease.__enter__

    def completed_meanwhile(lease: claims._Lease) -> claims._Lease:
        bucket.write("new/config.json", b"done")
        return wait(lease)

    monkeypatch.setattr(claims._Lease, "__enter__", completed_meanwhile)
    path = Path(f"gs://{bucket.name}/new")
    with pytest.raises(InputError, match="expected a new or empty directory"), storage.directory_resumably(path):
        raise ValueError
    assert _files(path) == {"config.json": b"done"}


def test_a_resumable_directory_is_kept_when_the_store_fails(bucket: Bucket) -> None:
    path = Path(f"gs://{bucket.name}/new")
    with pytest.raises(PermissionError), storage.directory_resumably(path) as directory:
        (directory / "part").write_bytes(b"1")
        bucket.faults(denied="^POST")
        (directory / "more").write_bytes(b"2")
    bucket.faults(reset=True)
    with storage.directory_resumably(path) as directory:
        assert (directory / "part").read_bytes() == b"1"


def test_the_file_that_says_what_a_directory_is_arrives_last(bucket: Bucket, uploads: list[str]) -> None:
    with storage.directory_atomically(f"gs://{bucket.name}/new") as directory:
        _fill(directory)
    # The config.json in `sub` is as any other file.
    assert uploads == [INCOMPLETE, "a", "config.json", "z", "config.json", "manifest.json"]
    assert f"new/{INCOMPLETE}" not in bucket.keys("new")


@pytest.mark.parametrize("at", [INCOMPLETE, "a", "z", "manifest.json"])
@pytest.mark.parametrize("error", [SystemExit, PermissionError])
def test_a_directory_whose_upload_is_killed_is_known_as_incomplete_and_replaced_by_the_next(
    bucket: Bucket, uploads: list[str], at: str, error: type[BaseException]
) -> None:
    path = Path(f"gs://{bucket.name}/new")
    uploads.killed_at = (at, error)
    with pytest.raises(error), storage.directory_atomically(path) as directory:
        _fill(directory, "first")
        (directory / "0 only in the first").write_bytes(b"")
    left = _files(path)
    assert "manifest.json" not in left and (INCOMPLETE in left or not left)
    uploads.killed_at = None
    with storage.directory_atomically(path) as directory:
        contents = _fill(directory, "second")
    assert _files(path) == contents


def test_what_is_incomplete_is_removed_and_nothing_else(bucket: Bucket, tmp_path: LocalPath) -> None:
    for name in ("part/a", "part/b/c", "part/thesis.txt", f"user/{INCOMPLETE}", "user/a", "whole/a", "part2/a"):
        bucket.write(name, b"")
    mark = {"written_by": "bert_jax", "files": ["a", "b/c", "not uploaded"]}
    bucket.write(f"part/{INCOMPLETE}", json.dumps(mark).encode())
    for name in ("part", "user", "whole", "missing", "part2"):
        storage.remove_incomplete(f"gs://{bucket.name}/{name}")
    assert bucket.keys() == ["part/thesis.txt", "part2/a", f"user/{INCOMPLETE}", "user/a", "whole/a"]
    (tmp_path / INCOMPLETE).touch()
    storage.remove_incomplete(tmp_path)
    assert (tmp_path / INCOMPLETE).exists()


def test_a_directory_is_replaced_by_another(root: Path) -> None:
    for name in ("home", "home.new"):
        (root / name).mkdir(parents=True, exist_ok=True)
        contents = _fill(root / name, name)
    (root / "home" / "only in the old").write_bytes(b"")
    storage.replace_directory(root / "home", root / "home.new")
    assert _files(root) == {f"home/{name}": data for name, data in contents.items()}


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt])
def test_files_of_a_local_directory_arrive_however_the_block_ends(
    root: Path, error: type[BaseException] | None
) -> None:
    root.mkdir(exist_ok=True)
    contents: dict[str, bytes] = {}
    try:
        with storage.local_directory(root) as name:
            assert os.path.isdir(name)
            contents = _fill(Path(name))
            if error:
                raise error
    except (ValueError, KeyboardInterrupt) as caught:
        assert type(caught) is error
    assert _files(root) == contents
    assert not root.is_remote or not os.path.exists(name)


def test_whether_a_file_can_be_written_is_known_before(root: Path, tmp_path: LocalPath) -> None:
    root.mkdir(exist_ok=True)
    storage.check_writable(root / "file")
    with pytest.raises(InputError, match="expected a file to write to, found a directory"):
        storage.check_writable(tmp_path)
    with pytest.raises(InputError, match=f"found no {tmp_path}/missing$"):
        storage.check_writable(tmp_path / "missing" / "file")
    with pytest.raises(FileNotFoundError, match="no such bucket"):
        storage.check_writable("gs://no-such-bucket/file")


def test_a_copy_on_this_machine_lasts_as_long_as_its_block(root: Path) -> None:
    root.mkdir(exist_ok=True)
    (root / "file.txt").write_bytes(b"here")
    with storage.local_copy(root / "file.txt") as name:
        assert LocalPath(name).read_bytes() == b"here" and name.endswith("/file.txt")
    assert os.path.exists(name) != root.is_remote and (root / "file.txt").exists()
    with pytest.raises(OSError), storage.local_copy(root / "missing") as name, open(name):
        pass
