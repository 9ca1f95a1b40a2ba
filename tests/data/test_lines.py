"""Lines of any file in bounded memory."""

import gzip
import io
import os

import pytest

from bert_jax import storage
from bert_jax.data.lines import MAX_ROW_BYTES, numbered_lines, parse_object, read_lines, stream_lines
from bert_jax.errors import InputError
from bert_jax.storage import decompression


def write(path, data):
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return str(path)


def test_lines_of_a_text(tmp_path):
    spec = write(tmp_path / "a.txt.gz", gzip.compress("\ufeffone\r\n\ntwo\u2028three ".encode()))
    assert list(read_lines(spec)) == ["one", "", "two\u2028three "]


def test_a_line_over_the_limit_is_refused_before_it_is_read(tmp_path):
    class Endless(io.RawIOBase):
        given = 0

        def readable(self):
            return True

        def readinto(self, buffer):
            Endless.given += len(buffer)
            buffer[:] = b"a" * len(buffer)
            return len(buffer)

    with pytest.raises(InputError, match=r"stdin: line 1: expected a line of at most 16,777,216 bytes, found a longer"):
        list(stream_lines(io.BufferedReader(Endless()), "stdin"))
    assert MAX_ROW_BYTES < Endless.given < MAX_ROW_BYTES + (1 << 20)
    spec = write(tmp_path / "a.txt", "one\n" + "x" * 8 + "\n")
    assert [line for _, line in numbered_lines(spec, 9)] == ["one\n", "xxxxxxxx\n"]
    with pytest.raises(InputError, match=r"a\.txt: line 2: expected a line of at most 8 bytes, found a longer"):
        list(numbered_lines(spec, 8))


def test_a_compressed_file_that_grows_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(decompression, "_UNCHECKED_BYTES", 1 << 20)
    rows = b"text\tlabel\n" * 400_000
    spec = write(tmp_path / "bomb.tsv.gz", gzip.compress(rows))
    assert len(rows) > storage.MAX_COMPRESSION * os.path.getsize(spec)
    count = 0
    with pytest.raises(InputError, match=r"bomb\.tsv\.gz: after line .* found one that grows to over 200 times its"):
        for _ in numbered_lines(spec):
            count += 1
    assert 0 < count < 200_000


@pytest.mark.parametrize("kind", ["fifo", "device"])
def test_pipes_and_devices_are_refused_at_once(tmp_path, kind):
    spec = "/dev/zero"
    if kind == "fifo":
        spec = str(tmp_path / "pipe.tsv")
        os.mkfifo(spec)
    with pytest.raises(InputError, match="expected a file, found a pipe or a device"):
        list(numbered_lines(spec))


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ('{"a": ' + "1" * 5000 + "}", "found an integer of thousands of digits"),
        ("[" * 100_000, "found a value that is nested too deeply"),
        ('{"a": 1', "expected a JSON object, found Expecting ',' delimiter at column 8"),
        ("[1]", "expected a JSON object, found list"),
    ],
)
def test_json_of_a_line_is_bounded(line, found):
    with pytest.raises(InputError, match=f"x.jsonl: line 3: .*{found}") as error:
        parse_object("x.jsonl: line 3", line)
    assert len(str(error.value)) < 200
