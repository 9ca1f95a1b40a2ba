"""Reading documents: every kind of corpus, and what is said about files that cannot be read."""

import bz2
import dataclasses
import functools
import gzip
import importlib
import json
import lzma
import os
import pickle
import subprocess
import sys

import pytest

from bert_jax.data.corpora import readers
from bert_jax.data.corpora.python_docs import prose
from bert_jax.data.corpora.sources import open_corpus
from bert_jax.errors import InputError

COMPRESS = {"gz": functools.partial(gzip.compress, mtime=0), "bz2": bz2.compress, "xz": lzma.compress}
TEXT = "First line.\nSecond line.\n\n\n  Third.  \n\nFourth \u00e9.\n"


def texts(spec):
    return [document.texts for document in open_corpus(spec)]


def test_a_blank_line_ends_a_document(tmp_path):
    (tmp_path / "a.txt").write_text(TEXT)
    assert texts(str(tmp_path / "a.txt")) == [("First line.", "Second line."), ("Third.",), ("Fourth \u00e9.",)]


def test_a_file_is_a_document(tmp_path):
    (tmp_path / "a.txt").write_text(TEXT)
    assert texts(f"files:{tmp_path / 'a.txt'}") == [("First line.", "Second line.", "Third.", "Fourth \u00e9.")]


def test_sentences_are_not_split_again(tmp_path):
    (tmp_path / "a.txt").write_text(TEXT)
    documents = list(open_corpus(f"sentences:{tmp_path / 'a.txt'}"))
    assert len(documents) == 3 and all(document.are_sentences for document in documents)


def test_folders_globs_and_compression_in_sorted_order(tmp_path):
    (tmp_path / "b.txt").write_text("b\n")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.md").write_text("\ufeffsub\n")  # a byte order mark is no text
    (tmp_path / ".hidden").write_text("hidden\n")
    for name, (suffix, compress) in zip(("a", "aa", "ab"), COMPRESS.items(), strict=True):
        (tmp_path / f"{name}.txt.{suffix}").write_bytes(compress(f"{name}\n".encode()))
    (tmp_path / "c.jsonl").write_text('{"text": "c"}\n')
    assert texts(str(tmp_path)) == [("a",), ("aa",), ("ab",), ("b",), ("c",), ("sub",)]
    assert texts(f"{tmp_path}/**/*.md") == [("sub",)]
    assert texts([f"{tmp_path}/b.txt", f"{tmp_path}/sub"]) == [("b",), ("sub",)]
    corpus = open_corpus(str(tmp_path))
    assert list(corpus) == list(corpus)
    assert list(corpus.texts()) == ["a", "aa", "ab", "b", "c", "sub"]
    files = sorted(path for path in tmp_path.rglob("[!.]*") if path.is_file())
    sizes = [path.stat().st_size for path in files]
    assert [document.end for document in corpus] == sizes and corpus.num_bytes == sum(sizes)


def test_json_lines(tmp_path):
    rows = [{"text": "One.\nTwo.", "body": "x"}, {"text": "Three.", "body": "y"}]
    path = tmp_path / "a.jsonl"
    path.write_text("\n\n".join(map(json.dumps, rows)))
    assert texts(str(path)) == [("One.", "Two."), ("Three.",)]
    assert texts(f"{path}:body") == [("x",), ("y",)]


def test_long_documents_and_lines_come_in_pieces_without_loss(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "MAX_DOCUMENT_BYTES", 1000)
    path = tmp_path / "a.txt"
    path.write_text("\n".join(f"line {i}" for i in range(1000)))
    documents = texts(str(path))
    assert len(documents) > 5 and max(sum(map(len, d)) for d in documents) < 1100
    assert [t for d in documents for t in d] == [f"line {i}" for i in range(1000)]
    path.write_text("\u00e9t\u00e9 " * 500 + "\u6c34" * 500 + "\nend\n")
    pieces = [line.text for line in readers.text_lines(path.resolve(), 100)]
    assert "".join(pieces) == path.read_text() and max(len(p.encode()) for p in pieces) <= 100


@pytest.fixture
def tfds_folder(tmp_path, monkeypatch):
    """A folder with a data set prepared here, in the format that needs no TensorFlow."""
    import tensorflow_datasets as tfds

    class Documents(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")
        name = "tiny_documents"

        def _info(self):
            features = {"text": tfds.features.Text(), "label": tfds.features.ClassLabel(num_classes=2)}
            return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

        def _split_generators(self, dl_manager):
            return {"train": self._generate_examples()}

        def _generate_examples(self):
            for i in range(5):
                yield i, {"text": f"Document {i}.\nMore \u00e9.", "label": i % 2}

    Documents(data_dir=tmp_path, file_format="array_record").download_and_prepare()
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))


def test_tensorflow_datasets_without_tensorflow(tfds_folder):
    assert sorted(texts("tfds:tiny_documents")) == [(f"Document {i}.", "More \u00e9.") for i in range(5)]
    assert len(texts("tfds:tiny_documents:train[:2]")) == 2
    corpus = open_corpus("tfds:tiny_documents")
    assert corpus.num_bytes > 5 and list(corpus)[-1].end == corpus.num_bytes
    parts = [pickle.loads(pickle.dumps(part)) for part in corpus.parts(1)]
    assert [next(part.read()) for part in parts] == [
        dataclasses.replace(d, end=d.end // n) for n, d in enumerate(corpus, 1)
    ]
    assert "tensorflow" not in sys.modules
    for spec, message in (
        ("tfds:tiny_documents:test", "split 'test'"),
        ("tfds:tiny_documents:train:txt", "did you mean 'text'"),
        ("tfds:tiny_documents:train:label", "expected text, found"),
        ("tfds:no_such_data_set", "no_such_data_set"),
    ):
        with pytest.raises(InputError, match=message):
            texts(spec)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"", "empty file"),
        ("a.txt", b" \n\n", "only blank lines"),
        ("a.txt", b"good\n\nbad \xff\n", "line 3: expected UTF-8 text, found byte 0xff"),
        *(
            (f"a.txt.{suffix}", content, f"line .*: expected a whole .{suffix} file, found {what}")
            for suffix, compress in COMPRESS.items()
            for content, what in (
                (compress(b"".join(b"%d\n" % (i * i) for i in range(20000)))[:-200], "one that is cut short"),
                (b"text that is not compressed, " * 9, "a damaged one"),
            )
        ),
        ("a.jsonl", b'{"text": "a"}\n{"text": \n', "line 2: expected a JSON object"),
        ("a.jsonl", b'["a"]\n', "row 1: expected a JSON object, found str"),
        ("a.jsonl", b'["a"]\n["b"]', "line 1: expected a JSON object, found list"),
        ("a.jsonl", b'{"text": "a"}\n{"text": "\\ud83d"}', "line 2: expected .* text, found half a surrogate pair"),
        ("a.jsonl", b'{"text": ' + b"9" * 5000 + b"}", "line 1: .*an integer of thousands of digits"),
        ("a.jsonl", b'{"text": ' + b"[" * 100000, "line 1: .*nested too deeply"),
        ("a.json", b'[{"text": "a"}, {"txt": "b"}]', "row 2: expected a field 'text'; did you mean 'txt'"),
        ("a.txt", b"caf\xe9\n", "line 1: expected UTF-8 text, found byte 0xe9 at offset 3 .* iconv -f cp1252"),
        ("a.txt", "caf\u00e9\n".encode("utf-16"), "found UTF-16; convert it: iconv -f utf-16 -t utf-8"),
        ("a.txt", "caf\u00e9\n".encode("utf-16-be"), "found a binary file: byte 0x00 at offset 0"),
        ("a.txt", b"%PDF-1.7\n%\xe2\xe3\n", "found a PDF; extract its text first"),
        ("a.txt", gzip.compress(b"text", mtime=0), "found a file compressed by gzip; its name must end in .gz"),
        ("a.txt.gz", gzip.compress(bytes(10_000_000), mtime=0), "found a binary file: byte 0x00 at offset 0"),
        ("a.parquet", b"PAR1 and more", "expected a Parquet file, found: "),
        ("a.jsonl", b'{"txt": "a"}\n', "line 1: expected a field 'text'; did you mean 'txt'"),
        ("a.jsonl", b'{"text": 3}\n', "line 1: 'text': expected text, found int"),
        ("a.jsonl", b"\n\n", "only blank ones"),
    ],
)
def test_bad_files_are_named_with_the_line(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as error:
        texts(str(path))
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_a_damaged_gzip_file(tmp_path):
    data = bytearray(gzip.compress(b"".join(b"%d\n" % (i * i) for i in range(20000))))
    data[len(data) // 2] ^= 0xFF
    (tmp_path / "a.txt.gz").write_bytes(data)
    with pytest.raises(InputError, match=r"\.gz file"):
        texts(str(tmp_path / "a.txt.gz"))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("{}/none.txt", "no such file or folder"),
        ("{}/*.txt", "no file matches"),
        ("{}", "folder with text files"),
        ("file:x", "unknown kind of corpus 'file'; did you mean 'files'"),
        ([], "at least one corpus"),
    ],
)
def test_specs_that_name_nothing(tmp_path, spec, message):
    with pytest.raises(InputError, match=message):
        open_corpus(spec.format(tmp_path) if isinstance(spec, str) else spec)


DOCSTRING = """Returns the ``sum`` of two :class:`~x.Number` values.

Parameters
----------
first : int
    The first of the numbers that are added,
    as any integer.

Note:
  Use `sum <http://x>`_ for more than *two* values, it is made for that.

>>> add(1, 2)  # an example that is not prose at all
3

=====  =====
a      b
"""


def test_prose_of_a_docstring():
    assert prose(DOCSTRING) == [
        "Returns the sum of two Number values.",
        "The first of the numbers that are added, as any integer.",
        "Use sum for more than two values, it is made for that.",
    ]


def test_code_with_an_angle_bracket():
    text = "Use `numpy.log2` for `x < 0` as the `guide <https://x.org/a>`_ of `x <= y` says."
    assert prose(text) == ["Use numpy.log2 for x < 0 as the guide of x <= y says."]


PYTHON_DOCS = """
import sys
from bert_jax.data.corpora.python_docs import read_python_docs
names, paragraphs = [], []
for document in read_python_docs():
    names.append(document.name)
    paragraphs += document.texts
imported = {"jax", "matplotlib", "tensorflow_datasets", "this", "antigravity"} & set(sys.modules)
print(len(names), sum(len(p.split()) for p in paragraphs), len(paragraphs) - len(set(paragraphs)), len(imported))
print(names.index("python-docs:assert") < names.index("python-docs:argparse") < names.index("python-docs:numpy"))
"""


@pytest.mark.slow
def test_python_docs_are_large_without_repetition_and_import_nothing():
    found = subprocess.run([sys.executable, "-c", PYTHON_DOCS], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    documents, words, repeated, imported, in_order = found.stdout.split()
    assert int(documents) > 1000 and int(words) > 600_000
    assert (repeated, imported, in_order) == ("0", "0", "True")


WIKITEXT = """
 = Robert Boulter =

 Robert Boulter is an actor . He was born in 1980 .
 Second paragraph .

 = = Career = =

 = = = 2000 – 2005 = = =

 In 2000 he had a role .

 = A = b =

 Another article .
"""


def test_articles_of_wikitext(tmp_path):
    (tmp_path / "wiki.txt").write_text(WIKITEXT)
    first = ("Robert Boulter is an actor . He was born in 1980 .", "Second paragraph .", "In 2000 he had a role .")
    assert texts(f"wikitext:{tmp_path}") == [first, ("Another article .",)]
    assert len(texts(str(tmp_path))) == 7  # what a blank line makes of it
    (tmp_path / "other.txt").write_text("No titles.\n\nNone.\n")
    with pytest.raises(InputError, match=r"other\.txt: expected the titles of WikiText"):
        texts(f"wikitext:{tmp_path / 'other.txt'}")


def test_arrays_and_parquet_are_read_as_json_lines_are(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    rows = [{"text": f"One {i}.\nTwo.", "body": "x"} for i in range(3000)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "a.json").write_text(json.dumps(rows, indent=1))
    importlib.import_module("pyarrow.parquet").write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    expected = texts(str(tmp_path / "a.jsonl"))
    assert expected[2999] == ("One 2999.", "Two.")
    for name in ("a.json", "a.parquet"):
        assert texts(str(tmp_path / name)) == expected
        corpus = open_corpus(f"{tmp_path / name}:body")
        assert list(corpus)[-1].end == corpus.num_bytes
        assert {document.texts for document in corpus} == {("x",)}
        with pytest.raises(InputError, match=rf"{name}.* expected a (field|column) 'bdy'; did you mean 'body'"):
            texts(f"{tmp_path / name}:bdy")


def test_blank_lines_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "MAX_BLANK_LINES", 100)
    (tmp_path / "a.txt").write_text("a\n" + "\n" * 100 + "b\n")
    assert texts(str(tmp_path / "a.txt")) == [("a",), ("b",)]
    (tmp_path / "b.txt").write_text("a\n" + "\r\n" * 101 + "b\n")
    with pytest.raises(InputError, match=r"b\.txt: line 102: expected text, found 101 blank lines before it"):
        texts(str(tmp_path / "b.txt"))


def test_a_row_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "MAX_ROW_BYTES", 100)
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n{"text": "' + "b " * 100 + '"}')
    with pytest.raises(InputError, match="line 2: expected a line of at most 100 bytes, found a longer one"):
        texts(str(tmp_path / "a.jsonl"))


@pytest.mark.parametrize("name", ["pipe", "/dev/zero"])
def test_pipes_and_devices_are_refused(tmp_path, name):
    os.mkfifo(tmp_path / "pipe")
    for spec in (str(tmp_path / name), f"files:{tmp_path / name}"):
        with pytest.raises(InputError, match="expected a file, found a pipe or a device"):
            texts(spec)
