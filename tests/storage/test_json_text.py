"""JSON that somebody else wrote."""

import os

import pytest

from bert_jax import storage
from bert_jax.errors import InputError


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("{", "line 1, column 2"),
        ("[" * 200_000, "nested too deeply"),
        ("1" * 6000, "an integer of thousands of digits"),
        ('{"a": ["\\ud83d"]}', "half a surrogate pair"),
    ],
)
def test_broken_json_is_refused_in_one_line(text, found):
    with pytest.raises(InputError, match=found):
        storage.parse_json(text, "x.json")


def test_a_whole_surrogate_pair_is_a_character():
    assert storage.parse_json('"\\ud83d\\ude00"') == "\N{GRINNING FACE}"


def test_a_file_must_hold_an_object(tmp_path):
    (tmp_path / "x.json").write_text("[1]")
    with pytest.raises(InputError, match="expected a JSON object, found list"):
        storage.read_json(tmp_path / "x.json")


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "x.json")
    with pytest.raises(InputError, match="found a pipe or a device"):
        storage.read_json(tmp_path / "x.json")


def test_a_text_may_have_a_limit(tmp_path):
    (tmp_path / "x.txt").write_text("x" * 11)
    with pytest.raises(InputError, match="at most 10 bytes, found 11"):
        storage.read_text(tmp_path / "x.txt", 10)
