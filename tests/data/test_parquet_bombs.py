"""A small Parquet file does not fill the memory: a row has at most 16 MB, and pages expand to at most 200 times."""

import json
import subprocess
import sys

import pytest

from bert_jax.data.corpora.sources import open_corpus
from bert_jax.data.finetuning.columns import Columns
from bert_jax.data.finetuning.tables import read_rows
from bert_jax.data.invalid_rows import InvalidRows
from bert_jax.data.parquet_files import read_parquet
from bert_jax.errors import InputError

pa = pytest.importorskip("pyarrow", reason="of the [parquet] extra")
parquet = pytest.importorskip("pyarrow.parquet")
MEGABYTE = "the cat " * (1 << 17)
FREE = 600 << 20  # bytes that a reader may take beyond what the imports take

READ = """
import resource, sys
from bert_jax.data.corpora.sources import open_corpus
from bert_jax.data.parquet_files import read_parquet
import pyarrow.parquet, pyarrow.compute
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
rows, size = 0, 0
try:
    for row in open_corpus(sys.argv[1]) if sys.argv[1].startswith("datasets:") else read_parquet(sys.argv[1]):
        rows += 1
        if rows == 300:
            break
except Exception as error:
    print(type(error).__name__, error)
print(rows, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10)
"""


def write(path, columns, **options):
    parquet.write_table(pa.table(columns), path, compression="zstd", dictionary_pagesize_limit=1 << 30, **options)
    assert path.stat().st_size < 300_000
    return str(path)


def memory_of(path):
    """Read a file in a process of its own: what it said, the number of rows, and the memory that they took."""
    done = subprocess.run([sys.executable, "-c", READ, path], capture_output=True, text=True, timeout=120, check=True)
    *said, last = done.stdout.splitlines()
    rows, size = map(int, last.split())
    return " ".join(said), rows, size


def repeated(count, kind=None, value=MEGABYTE):
    """A value for many rows; this process too has one copy of it."""
    return pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), pa.array([value], kind))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary()], ids=str)
@pytest.mark.parametrize("is_category", [False, True], ids=["plain", "category of pandas"])
def test_a_value_that_a_file_has_once_is_not_copied_for_a_thousand_rows(kind, is_category, tmp_path):
    value = MEGABYTE.encode() if kind == pa.binary() else MEGABYTE
    columns = {"sentence": repeated(1024, kind, value), "label": ["a", "b"] * 512}
    said, rows, size = memory_of(write(tmp_path / "a.parquet", columns, store_schema=is_category))
    assert (said, rows) == ("", 300) and size < FREE


@pytest.mark.parametrize("kind", ["list", "list of lists", "list of structs"])
def test_a_row_of_lists_is_measured_before_it_is_made(kind, tmp_path):
    texts = repeated(1024)
    if kind == "list of lists":
        texts = pa.ListArray.from_arrays(range(0, 1025, 32), texts)
    elif kind == "list of structs":
        texts = pa.StructArray.from_arrays([texts], ["a"])
    choices = pa.ListArray.from_arrays([0, 0, len(texts)], texts)
    said, rows, size = memory_of(write(tmp_path / "a.parquet", {"choices": choices}, store_schema=False))
    assert said.endswith("row 2: expected a row of at most 16,777,216 bytes, found 1,073,741,824") and rows == 1
    assert size < FREE


@pytest.mark.parametrize("name", ["sentence", "a.b"])
def test_pages_that_expand_to_more_than_200_times(name, tmp_path):
    path = write(tmp_path / "a.parquet", {name: [MEGABYTE] * 128, "id": range(128)}, use_dictionary=False)
    said, rows, size = memory_of(path)
    assert "expected a Parquet file of text, found one that grows to over 200 times its size" in said and not rows
    assert size < FREE
    assert [row.values["id"] for row in read_parquet(path, ["id"])] == list(range(128))  # the other column is harmless


@pytest.mark.parametrize("read", [
    lambda path: list(read_rows(path, Columns("sentence", "", ""), InvalidRows("a.parquet"))),
    lambda path: list(open_corpus(f"{path}:sentence")),
], ids=["table", "corpus"])  # fmt: skip
def test_every_reader_refuses_a_row_over_16_megabytes(read, tmp_path):
    path = write(tmp_path / "a.parquet", {"sentence": ["a", MEGABYTE * 17]})
    with pytest.raises(InputError, match=r"row 2: expected a row of at most 16,777,216 bytes, found 17,825,792"):
        read(path)


def test_rows_are_the_same_objects_as_pyarrow_reads(tmp_path):
    rows = [
        {
            "text": None if i % 7 == 3 else f"text {i % 40} " * (i % 5),
            "tags": None if i % 11 == 5 else ["O", f"B-{i % 3}", None][: i % 4],
            "answers": {"text": [f"x{i % 2}"], "answer_start": [i]},
            "numbers": [i, i + 1],
            "score": i / 3,
        }
        for i in range(1000)
    ]
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet", row_group_size=300)
    assert [row.values for row in read_parquet(tmp_path / "a.parquet")] == rows
    pairs = [[("k", "v")], [], None, [("k", None)]]
    columns = {
        "category": pa.array(["a", "b", "a", None]).dictionary_encode(),
        "numbers": pa.array([1, 2, 1, 2]).dictionary_encode(),
        "map": pa.array(pairs, pa.map_(pa.string(), pa.string())),
        "pair": pa.array([["a", "b"]] * 4, pa.list_(pa.string(), 2)),
        "view": pa.array([["a"], None, [], ["a", "b"]], pa.list_view(pa.string())),
        "none": pa.nulls(4),
        "a.b": ["x", "y", None, ""],
    }
    parquet.write_table(pa.table(columns), tmp_path / "b.parquet")
    assert [row.values for row in read_parquet(tmp_path / "b.parquet")] == pa.table(columns).to_pylist()


def save(folder, texts):
    """Write a data set as `save_to_disk` of datasets does."""
    folder.mkdir()
    with (
        pa.OSFile(str(folder / "a.arrow"), "wb") as file,
        pa.ipc.new_stream(file, pa.schema({"text": texts.type})) as out,
    ):
        out.write_batch(pa.record_batch({"text": texts}))
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": "a.arrow"}]}))
    return f"datasets:{folder}"


def test_a_saved_data_set_is_read_in_the_same_bounds(tmp_path):
    said, rows, size = memory_of(save(tmp_path / "set", repeated(1024)))
    assert (said, rows) == ("", 300) and size < FREE
    with pytest.raises(
        InputError, match=r"a\.arrow: row 2: expected a row of at most 16,777,216 bytes, found 17,825,796"
    ):
        list(open_corpus(save(tmp_path / "large", pa.array(["a", MEGABYTE * 17]))))


@pytest.mark.parametrize("name", ["../secret.arrow", "{}/secret.arrow", "sub/../../secret.arrow"])
def test_a_saved_data_set_names_files_of_its_own_folder(name, tmp_path):
    with (
        pa.OSFile(str(tmp_path / "secret.arrow"), "wb") as file,
        pa.ipc.new_stream(file, pa.schema({"text": "string"})) as out,
    ):
        out.write_batch(pa.record_batch({"text": ["a secret"]}))
    (tmp_path / "set" / "sub").mkdir(parents=True)
    state = {"_data_files": [{"filename": name.format(tmp_path)}]}
    (tmp_path / "set" / "state.json").write_text(json.dumps(state))
    with pytest.raises(InputError, match="expected names as `save_to_disk` of datasets writes them, found others"):
        list(open_corpus(f"datasets:{tmp_path / 'set'}"))
