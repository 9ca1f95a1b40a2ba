"""Texts of a command line, a file or stdin: read a bounded line at a time, and checked before a model is opened."""

import argparse
import gzip
import io
import json
import os

import pytest

from bert_jax.cli import stream
from bert_jax.cli.stream import Texts
from bert_jax.data import lines
from bert_jax.errors import InputError


def texts(*given, file=None, jsonl=False, skip=False):
    args = argparse.Namespace(texts=list(given), file=file and str(file), jsonl=jsonl, skip=skip, field="text")
    return [text for _, text in Texts(args)]


def write(path, content):
    path.write_bytes(content)
    return path


def test_what_is_read(tmp_path):
    assert texts("a", "\u00e9") == ["a", "\u00e9"]
    assert texts(file=write(tmp_path / "a.txt", b"\xef\xbb\xbfa\r\n\nb\x0b")) == ["a", "", "b\x0b"]
    assert texts(file=write(tmp_path / "a.jsonl.gz", gzip.compress(b'{"text": "a"}\n\n{"text": "b"}'))) == ["a", "b"]


def test_bytes_of_the_command_line_that_are_no_text():
    given = os.fsdecode(b"caf\xe9")
    with pytest.raises(InputError, match="text 2 of the command line: expected UTF-8 text, found byte 0xe9"):
        texts("a", given)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"a\ncaf\xe9\n", "line 2: expected UTF-8 text, found byte 0xe9 at offset 3"),
        ("a.txt", "caf\u00e9".encode("utf-16"), "found UTF-16; convert it: iconv"),
        ("a.txt", b"%PDF-1.4\n", "found a PDF"),
        ("a.txt.gz", gzip.compress(bytes(1 << 20), mtime=0), "found a binary file: byte 0x00 at offset 0"),
        ("a.jsonl", b'{"text": "a"}\n{"text": "\\ud83d"}\n', "line 2: expected .* text, found half a surrogate pair"),
        ("a.jsonl", b'{"text": ' + b"9" * 5000 + b"}", "line 1: .*an integer of thousands of digits"),
        ("a.jsonl", b"[" * 100_000, "line 1: .*nested too deeply"),
        ("a.jsonl", b'{"txt": "a"}', "line 1: expected an object with a text in 'text', found the fields txt"),
    ],
)
def test_what_is_refused(tmp_path, name, content, message):
    with pytest.raises(InputError, match=message):
        texts(file=write(tmp_path / name, content))


def test_invalid_lines_are_skipped_by_name(tmp_path, capsys):
    rows = [json.dumps({"text": "a"}), '{"text": "\\udc00"}', '{"text": 7', json.dumps({"text": "b"})]
    path = write(tmp_path / "a.jsonl", "\n".join(rows).encode())
    assert texts(file=path, skip=True) == ["a", "b"]
    said = capsys.readouterr().err.splitlines()
    assert [line.split(": expected")[0] for line in said] == [f"bert-jax: {path}: line {n}" for n in (2, 3)]


@pytest.mark.parametrize("skip", [False, True])
def test_a_line_of_a_pipe_is_bounded(monkeypatch, skip):
    class Endless(io.RawIOBase):
        size = 0

        def readable(self):
            return True

        def readinto(self, buffer):
            buffer[:] = b"a" * len(buffer)
            self.size += len(buffer)
            return len(buffer)

    source = Endless()
    monkeypatch.setattr(stream.sys, "stdin", io.TextIOWrapper(io.BufferedReader(source)))
    with pytest.raises(InputError, match=r"stdin: line 1: expected a line of at most 16,777,216 bytes"):
        texts(file="-", skip=skip)
    assert source.size < 2 * lines.MAX_ROW_BYTES
