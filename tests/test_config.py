"""BertConfig: named sizes, Hugging Face's config.json both ways, and refusals."""

import json

import pytest

from bert_jax.config import SIZES, BertConfig
from bert_jax.errors import InputError


@pytest.mark.parametrize("size", SIZES)
def test_named_sizes(size):
    config = BertConfig.named(size)
    assert config.intermediate_size == 4 * config.hidden_size
    assert config.head_size == 64


def test_config_json_round_trip(tmp_path):
    config = BertConfig.named("mini", hidden_act="gelu_tanh", id2label=("no", "yes", "maybe"), num_labels=3)
    config.to_json_file(tmp_path / "config.json", "BertForSequenceClassification")
    assert BertConfig.from_json_file(tmp_path / "config.json") == config
    written = json.loads((tmp_path / "config.json").read_text())
    assert written["hidden_act"] == "gelu_new"
    assert written["architectures"] == ["BertForSequenceClassification"]
    assert written["label2id"] == {"no": 0, "yes": 1, "maybe": 2}


def test_labels_are_ordered_by_number():
    names = {str(i): f"name{i}" for i in range(12)}
    assert BertConfig.from_hf({"id2label": names}).id2label == tuple(f"name{i}" for i in range(12))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_attention_heads": 5}, "num_attention_heads 5 must divide hidden_size 768"),
        ({"hidden_size": 0}, "hidden_size must be a positive integer, found 0"),
        ({"hidden_size": 7.5}, "hidden_size must be a positive integer, found 7.5"),
        ({"hidden_dropout_prob": 1.0}, "hidden_dropout_prob must be a rate"),
        ({"hidden_act": "gelo"}, "did you mean 'gelu'"),
        ({"id2label": ("a",)}, "num_labels is 2 but id2label names 1"),
    ],
)
def test_nonsense_is_refused(change, message):
    with pytest.raises(InputError, match=message):
        BertConfig(**change)


def test_files_that_are_not_a_bert_are_refused(tmp_path):
    path = tmp_path / "config.json"
    with pytest.raises(InputError, match="no such file"):
        BertConfig.from_json_file(path)
    path.write_text("{")
    with pytest.raises(InputError, match="expected JSON"):
        BertConfig.from_json_file(path)
    path.write_text('{"model_type": "gpt2"}')
    with pytest.raises(InputError, match=r"expected model_type to be one of bert, .*, found 'gpt2'"):
        BertConfig.from_json_file(path)
    with pytest.raises(InputError, match="did you mean 'large'"):
        BertConfig.named("larg")
