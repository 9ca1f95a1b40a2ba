"""Files that this package did not write stay as they are, in every directory that it writes into."""

import json
from collections.abc import Callable
from pathlib import Path as LocalPath

import pytest
from bucket import Bucket

from bert_jax import storage
from bert_jax.errors import InputError
from bert_jax.storage import Path, claims
from bert_jax.storage.writing import INCOMPLETE

_NAMES = (
    "thesis.txt",
    "part-00001.npy",
    "train-128-00002-000.npy",
    ".out.12345678.partial",
    ".model.partial",
    ".thesis.txt.0123abcd.partial",
    "7.orbax-checkpoint-tmp",
    "deep/down/thesis.txt",
)
_MARKS = (b"", b"{}", b"[]", b"\xff", b'{"written_by": "aria2", "files": ["thesis.txt"]}', b"[" * 100_000)


@pytest.fixture(autouse=True)
def _short_beats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "BEAT_SECONDS", 0.1)
    monkeypatch.setattr(claims, "STALE_SECONDS", 1.0)
    monkeypatch.setattr(claims, "_SETTLE_SECONDS", 0.01)


def _put(directory: Path, names: tuple[str, ...] = _NAMES) -> dict[str, bytes]:
    """Put files of a user into a directory; return what is in them."""
    for name in names:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(f"of the user: {name}".encode())
    return {name: f"of the user: {name}".encode() for name in names}


def _found(directory: Path) -> dict[str, bytes]:
    files = {str(file.relative_to(directory)): file.read_bytes() for file in directory.files_below()}
    return {name: data for name, data in files.items() if claims.LEASES not in name}


_WRITERS: list[Callable] = [storage.directory_atomically, storage.directory_resumably]


@pytest.mark.parametrize("write", _WRITERS)
def test_what_is_beside_an_output_stays(root: Path, write: Callable) -> None:
    before = _put(root)
    with write(root / "out") as directory:
        (directory / "part").write_bytes(b"ours")
    storage.write_atomically(root / "file", "ours")
    assert _found(root) == before | {"out/part": b"ours", "file": b"ours"}


@pytest.mark.parametrize("mark", _MARKS)
@pytest.mark.parametrize("write", _WRITERS)
def test_a_folder_with_the_mark_of_another_program_is_refused(bucket: Bucket, write: Callable, mark: bytes) -> None:
    path = Path(f"gs://{bucket.name}/out")
    before = _put(path) | {INCOMPLETE: mark}
    bucket.write(f"out/{INCOMPLETE}", mark)
    storage.remove_incomplete(path)
    with pytest.raises(InputError, match="expected a new or empty directory"), write(path):
        pytest.fail("it was written to")
    assert _found(path) == before


@pytest.mark.parametrize("names", [["../thesis.txt"], ["/thesis.txt"], ["a/../../thesis.txt"], [""], [1], {"a": 1}])
def test_a_mark_cannot_name_files_elsewhere(bucket: Bucket, names: object) -> None:
    bucket.write("thesis.txt", b"of the user")
    bucket.write(f"out/{INCOMPLETE}", json.dumps({"written_by": "bert_jax", "files": names}).encode())
    storage.remove_incomplete(f"gs://{bucket.name}/out")
    assert bucket.keys() == [f"out/{INCOMPLETE}", "thesis.txt"]


def test_what_was_put_into_an_incomplete_upload_stays(bucket: Bucket) -> None:
    path = Path(f"gs://{bucket.name}/out")
    before = _put(path)
    bucket.write("out/config.json", b"half")
    bucket.write(f"out/{INCOMPLETE}", json.dumps({"written_by": "bert_jax", "files": ["config.json", "z"]}).encode())
    with storage.directory_atomically(path) as directory:
        (directory / "config.json").write_bytes(b"ours")
    assert _found(path) == before | {"config.json": b"ours"}


def test_a_file_that_appeared_under_a_name_of_ours_is_not_overwritten(bucket: Bucket) -> None:
    path = Path(f"gs://{bucket.name}/out")
    with (
        pytest.raises(InputError, match=r"out/config\.json: expected no file of this name yet"),
        storage.directory_atomically(path) as directory,
    ):
        (directory / "config.json").write_bytes(b"ours")
        bucket.write("out/config.json", b"of the user")
    assert _found(path) == {"config.json": b"of the user"}


def test_what_was_put_into_a_directory_that_is_resumed_stays(root: Path) -> None:
    def written(directory: Path) -> None:
        (directory / "part").unlink()

    before: dict[str, bytes] = {}
    for error in (KeyboardInterrupt, ValueError):
        with pytest.raises(error), storage.directory_resumably(root / "out", written) as directory:
            (directory / "part").write_bytes(b"ours")
            before = _put(directory)
            raise error
    with storage.directory_resumably(root / "out", written) as directory:
        assert _found(directory).items() >= before.items()
        assert not (directory / "part").exists()
    assert _found(root / "out") == before


def test_a_directory_that_is_not_ours_is_not_resumed(tmp_path: LocalPath) -> None:
    before = _put(Path(tmp_path / ".out.partial"))
    refused = pytest.raises(InputError, match=r"\.out\.partial: .*found one with other files")
    with refused, storage.directory_resumably(tmp_path / "out"):
        pytest.fail("it was written to")
    assert _found(Path(tmp_path / ".out.partial")) == before
    assert [path.name for path in tmp_path.iterdir()] == [".out.partial"]
    (tmp_path / ".file.partial").write_text("of the user")
    refused = pytest.raises(InputError, match=r"\.file\.partial: expected no file of this name")
    with refused, storage.directory_resumably(tmp_path / "file"):
        pytest.fail("it was written to")
    assert (tmp_path / ".file.partial").read_text() == "of the user"


def test_leases_that_are_not_ours_stay(bucket: Bucket) -> None:
    path = Path(f"gs://{bucket.name}/out")
    for name in ("1.json", "2.json", "thesis.txt"):
        bucket.write(f"out/{claims.LEASES}/{name}", b"of the user")
    with claims.claimed(path, "busy"):
        pass
    for name in ("1.json", "2.json", "thesis.txt"):
        assert bucket.read(f"out/{claims.LEASES}/{name}") == b"of the user"
