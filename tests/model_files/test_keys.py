"""A key of a side file is honoured, harmless, refused, or named: in a warning if it may change the outputs."""

import logging
import time

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


def test_keys_without_effect_elsewhere_are_counted_in_one_line(caplog):
    caplog.set_level(logging.INFO)
    content = {"loss": 1, "theta": 2, "sizes": 3, "torch_dtype": "float32", "steps": 10, "off": False}
    for _ in range(2):
        model_files.check_keys(content, TABLE, "d.json", others=iter(["theta", "width"]))
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "d.json: unknown keys are ignored: theta=2, sizes=3 (did you mean 'size'?)"),
        ("INFO", "d.json: 2 keys are not read: loss, steps"),
    ]


def test_other_models_are_not_asked_if_all_keys_are_known():
    def others():
        raise AssertionError("asked")
        yield

    model_files.check_keys({"size": 3, "author": "x", "torch_dtype": "float32"}, TABLE, "e.json", others())


def test_many_unread_keys_take_little_time():
    content = {f"{number}{'x' * 40}": number for number in range(1, 20_000)}
    before = time.process_time()
    model_files.check_keys(content, TABLE, "f.json", others=())
    assert time.process_time() - before < 2
