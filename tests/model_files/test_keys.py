"""A key of a side file is honoured, harmless, refused, or named."""

import logging

import pytest

from bert_jax import model_files
from bert_jax.errors import InputError

TABLE = (
    model_files.honoured("size", "how large it is"),
    model_files.harmless("author", "who wrote it"),
    model_files.refused("mode", "another way to compute", "plain"),
)


def test_known_keys_pass_in_silence(caplog):
    model_files.check_keys({"size": 3, "author": "x", "mode": "plain"}, TABLE, "a.json")
    model_files.check_keys({"mode": None, "unheard_of": None}, TABLE, "a.json")
    assert not caplog.records


def test_a_refused_key_must_have_its_default():
    with pytest.raises(InputError, match=r"b\.json: mode: expected 'plain', found 'odd': another way to compute"):
        model_files.check_keys({"mode": "odd"}, TABLE, "b.json")


def test_an_unknown_key_is_named_once(caplog):
    caplog.set_level(logging.WARNING)
    for _ in range(2):
        model_files.check_keys({"scale": 2, "size": 1}, TABLE, "c.json")
    assert [record.getMessage() for record in caplog.records] == ["c.json: unknown keys are ignored: scale=2"]
