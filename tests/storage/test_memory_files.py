"""Files whose content is in memory."""

import copy
import gzip
import pickle

from bert_jax import storage
from bert_jax.data.invalid_rows import InvalidRows
from bert_jax.data.json_files import JsonLayout, json_layout_of, json_objects
from bert_jax.data.lines import numbered_lines


def test_readers_open_them_like_files():
    lines = storage.MemoryFile("rows.jsonl", b'{"a": 1}\n{"a": 2}\n')
    assert lines == "rows.jsonl" and [line for _, line in numbered_lines(lines)] == ['{"a": 1}\n', '{"a": 2}\n']
    assert json_layout_of(lines) is JsonLayout.LINES
    assert list(json_objects(lines, InvalidRows(lines))) == [
        (1, "rows.jsonl: line 1", {"a": 1}),
        (2, "rows.jsonl: line 2", {"a": 2}),
    ]
    packed = storage.MemoryFile("rows.jsonl.gz", gzip.compress(b'{"a": 3}\n'))
    assert [row for *_, row in json_objects(packed, InvalidRows(packed))] == [{"a": 3}]


def test_copies_have_the_content():
    file = storage.MemoryFile("rows.jsonl", b"{}")
    for copied in (copy.copy(file), copy.deepcopy(file), pickle.loads(pickle.dumps(file))):
        assert type(copied) is storage.MemoryFile and (copied, copied.content) == (file, b"{}")
