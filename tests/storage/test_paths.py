"""`Path` on a disk and in a bucket: the same calls give the same."""

import pickle
import random
from concurrent.futures import ThreadPoolExecutor

import pytest
from bucket import Bucket

from bert_jax import storage
from bert_jax.errors import InputError
from bert_jax.storage import Path

_NAMES = [
    "plain.txt",
    "a b",
    "h#1",
    "50%",
    "50%25",
    "what?",
    "star*",
    "x[1]",
    "é 日本",
    "a+b&c=d",
    "{}",
    "old~",
    ".dot",
]
_DATA = random.Random(0).randbytes(10 << 20)
_LINES = b"".join(b"line %d\n" % number for number in range(800_000))


def _written(path: Path, data: bytes = b"x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("name", _NAMES)
def test_a_name_with_any_characters_is_written_listed_read_and_removed(root: Path, name: str) -> None:
    file = _written(root / name / name, b"here")
    assert file.name == name and file.parent == root / name
    assert file.read_bytes() == file.open("rb").read() == b"here"
    assert file.exists() and file.is_file() and not file.is_dir()
    assert file.parent.exists() and file.parent.is_dir() and not file.parent.is_file()
    assert list(root.iterdir()) == [root / name] and list((root / name).iterdir()) == [file]
    assert root.files_below() == [file] and root.sizes_below() == {f"{name}/{name}": 4}
    file.rename(root / name / f"new {name}")
    assert root.files_below() == [root / name / f"new {name}"]
    (root / name / f"new {name}").unlink()
    assert not file.exists() and root.files_below() == []


def test_nothing_is_where_nothing_was_written(root: Path) -> None:
    missing = root / "missing"
    assert not missing.exists() and not missing.is_dir() and not missing.is_file()
    assert missing.files_below() == [] and list(missing.glob("*")) == [] and missing.sizes_below() == {}
    missing.rmtree(missing_ok=True)
    missing.unlink(missing_ok=True)
    for fails in (
        missing.size,
        missing.read_bytes,
        missing.rmtree,
        lambda: list(missing.iterdir()),
        lambda: missing.open("rb"),
        lambda: missing.read_range(0, 1),
        lambda: missing.rename(root / "new"),
    ):
        with pytest.raises(FileNotFoundError) as caught:
            fails()
        assert str(missing) in str(caught.value)


def test_a_directory_cannot_be_opened_as_a_file(root: Path) -> None:
    _written(root / "folder" / "file")
    with pytest.raises(IsADirectoryError):
        (root / "folder").open("rb").read()


@pytest.mark.parametrize("size", [0, 1, 100_000, len(_DATA)])
def test_a_file_is_read_as_it_was_written(root: Path, size: int) -> None:
    file, data = root / "file", _DATA[:size]
    assert _written(file).write_bytes(data) == size  # in place of a shorter or longer one
    assert file.size() == size and file.read_bytes() == data
    with file.open("rb") as opened:
        assert opened.read() == data and opened.read() == b"" == opened.read(10) and opened.tell() == size
        opened.seek(0)
        assert b"".join(iter(lambda: opened.read(70_001), b"")) == data


@pytest.mark.parametrize(("start", "stop"), [(0, 0), (0, 5), (3, 5), (8, 99), (10, 20), (50, 60)])
@pytest.mark.parametrize("data", [b"", b"0123456789"], ids=["empty", "ten"])
def test_a_range_ends_where_the_file_ends(root: Path, data: bytes, start: int, stop: int) -> None:
    assert _written(root / "file", data).read_range(start, stop) == data[start:stop]


def test_reads_after_seeks_begin_where_the_seek_says(root: Path) -> None:
    with _written(root / "file", _DATA).open("rb") as file:
        for offset in (9_000_000, 5, len(_DATA) - 3, 0, 8 << 20, (8 << 20) - 1, len(_DATA), len(_DATA) + 5):
            assert file.seek(offset) == offset == file.tell()
            assert file.read(7) == _DATA[offset : offset + 7]
        assert file.seek(-4, 2) == len(_DATA) - 4 and file.read() == _DATA[-4:]
        file.seek(10)
        assert file.seek(5, 1) == 15 and file.read(1) == _DATA[15:16]


def test_text_is_read_line_by_line_and_whole(root: Path) -> None:
    (_written(root / "text")).write_text("zwei Ä\n日本\n\nend")
    with (root / "text").open() as file:
        assert list(file) == ["zwei Ä\n", "日本\n", "\n", "end"]
    assert (root / "text").open().read() == (root / "text").read_text() == "zwei Ä\n日本\n\nend"


@pytest.mark.parametrize("how", ["read", "lines", "text", "small"])
def test_an_object_is_read_by_few_requests(bucket: Bucket, how: str) -> None:
    bucket.write("file", _LINES)
    path = Path(f"gs://{bucket.name}/file")
    bucket.faults(reset=True)
    with path.open("r" if how == "text" else "rb") as file:
        if how in ("read", "text"):
            assert len(file.read()) == len(_LINES)
        elif how == "small":
            assert sum(map(len, iter(lambda: file.read(10_000), b""))) == len(_LINES)
        else:
            assert sum(1 for _ in file) == 800_000
    assert bucket.counts()["requests"]["GET download"] == (1 if how in ("read", "text") else 2)  # of 8 MiB each


def test_an_object_is_not_written_through_open(bucket: Bucket) -> None:
    with pytest.raises(ValueError, match="expected mode r or rb for an object"):
        Path(f"gs://{bucket.name}/file").open("wb")


def test_a_pattern_finds_files_and_nothing_else(root: Path) -> None:
    for name in ("a.txt", "b.txt", "c.md", "sub/d.txt", "sub/deep/e.txt", "x[1]/f.txt", "x1/g.txt"):
        _written(root / name)

    def found(pattern: str) -> list[str]:
        return [str(path.relative_to(root)) for path in storage.matching_files(f"{root}/{pattern}")]

    assert found("*.txt") == ["a.txt", "b.txt"]
    assert found("?.md") == ["c.md"] and found("[ab].txt") == ["a.txt", "b.txt"]
    assert found("*") == ["a.txt", "b.txt", "c.md"] and found("a.txt") == ["a.txt"] and found("none*") == []
    assert found("**/*.txt") == ["a.txt", "b.txt", "sub/d.txt", "sub/deep/e.txt", "x1/g.txt", "x[1]/f.txt"]
    assert sorted(path.name for path in root.glob("*.txt")) == ["a.txt", "b.txt"]
    assert [path.name for path in (root / "x[1]").glob("*")] == ["f.txt"]


def test_removing_a_directory_leaves_those_that_its_name_would_match_as_a_pattern(root: Path) -> None:
    for name in ("run[1]/a", "run[1]/sub/b?", "run[1]/sub/bc", "run1/a", "run?/a", "runs/a", "run*/a", "run"):
        _written(root / name)
    for name in ("run[1]", "run?", "run*"):
        (root / name).rmtree()
    assert [str(file.relative_to(root)) for file in root.files_below()] == ["run", "run1/a", "runs/a"]


def test_a_directory_that_is_marked_by_an_empty_object_is_empty_and_can_be_removed(bucket: Bucket) -> None:
    bucket.write("made/in/console/", b"")
    path = Path(f"gs://{bucket.name}/made/in/console")
    assert path.is_dir() and list(path.iterdir()) == [] and path.files_below() == []
    path.rmtree()
    assert not path.exists() and bucket.keys() == []


def test_a_directory_is_renamed_with_all_below_it(root: Path) -> None:
    for name in ("old/a", "old/old/b", "older/c"):
        _written(root / name, name.encode())
    assert (root / "old").rename(root / "new") == root / "new"
    assert {str(file.relative_to(root)): file.read_bytes() for file in root.files_below()} == {
        "new/a": b"old/a",
        "new/old/b": b"old/old/b",
        "older/c": b"older/c",
    }
    (root / "new/a").replace(root / "older/c")
    assert (root / "older/c").read_bytes() == b"old/a"


def test_more_objects_than_a_page_of_a_listing_are_all_found_and_removed(bucket: Bucket) -> None:
    names = [f"many/{number:04}" for number in range(1005)]
    for name in names:
        bucket.write(name, b"")
    path = Path(f"gs://{bucket.name}/many")
    assert [file.name for file in path.files_below()] == [name[5:] for name in names]
    assert len(list(path.iterdir())) == 1005
    path.rmtree()
    assert bucket.keys() == []


def test_parts_of_a_url() -> None:
    path = Path("gs://bucket/a/b.tar.gz")
    assert str(path) == path.url == "gs://bucket/a/b.tar.gz" and path.is_remote
    assert (path.name, path.stem, path.suffix) == ("b.tar.gz", "b.tar", ".gz")
    assert path.parent == Path("gs://bucket", "a") == Path("gs://bucket") / "a" == Path(Path("gs://bucket/a/"))
    assert path.with_suffix(".bz2").url == "gs://bucket/a/b.tar.bz2" and path.with_name("c").url == "gs://bucket/a/c"
    assert str(path.relative_to("gs://bucket")) == "a/b.tar.gz"
    assert path.resolve() == path.absolute() == path.expanduser() == path
    assert Path("gs://bucket", "a", "b").url == Path("gs://bucket").joinpath("a", "b").url == "gs://bucket/a/b"
    assert {type(each) for each in (path.parent, path / "x", path.with_suffix(""), path.resolve())} == {Path}
    assert hash(path) == hash(Path(str(path))) and path != Path("bucket/a/b.tar.gz")


@pytest.mark.parametrize("text", ["gs://bucket/a b/c#?[1]%20", "some/where", "/abs"])
def test_a_path_survives_pickling(text: str) -> None:
    again = pickle.loads(pickle.dumps(Path(text)))
    assert type(again) is Path and again == Path(text) and str(again) == text


@pytest.mark.parametrize("text", ["http://host/x", "hf://model", "gcs://bucket/x", "file:///x"])
def test_an_unknown_scheme_is_bad_input(text: str) -> None:
    with pytest.raises(InputError, match=r"expected a local path or one of gs://, s3://, az://, found \w+://$"):
        Path(text)


def test_a_url_without_a_bucket_is_an_error_at_once() -> None:
    with pytest.raises(OSError, match="expected a bucket and a path") as caught:
        Path("gs://").exists()
    assert caught.value.filename == "gs://"


def test_create_has_one_winner_among_threads(bucket: Bucket) -> None:
    path = Path(f"gs://{bucket.name}/lock")
    with ThreadPoolExecutor(12) as threads:
        won = list(threads.map(lambda number: path.create(b"%d" % number), range(12)))
    assert won.count(True) == 1
    assert path.read_bytes() == b"%d" % won.index(True)
    path.unlink()
    assert path.create(b"next") and not path.create(b"after")


@pytest.mark.parametrize("root", [".", "./", "a", "ABSOLUTE", ".out/in"])
def test_hidden_files_below_a_folder_are_not_found(tmp_path, monkeypatch, root):
    monkeypatch.chdir(tmp_path)
    for name in ("a/b.txt", "a/.c/d.txt", "a/.e", ".out/in/f.txt", ".out/in/.g", ".h"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    found = [str(path) for path in storage.find_files(str(tmp_path) if root == "ABSOLUTE" else root)]
    expected = {"ABSOLUTE": [str(tmp_path / "a/b.txt")], ".out/in": [".out/in/f.txt"]}
    assert found == expected.get(root, ["a/b.txt"])
