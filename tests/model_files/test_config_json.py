"""config.json, generation_config.json and adapter_config.json: their tables, their classes, and values of any kind."""

import dataclasses
import json
import logging

import pytest

from bert_jax.config import BertConfig
from bert_jax.errors import InputError
from bert_jax.families import FAMILIES, config_keys, family_of
from bert_jax.model_files.adapter import ADAPTER
from bert_jax.model_files.config import NOT_CARRIED
from bert_jax.model_files.encoder_decoder import ENCODER_DECODER_GENERATION
from bert_jax.model_files.keys import USUAL_KEYS
from bert_jax.model_files.labels import read_classes

# Keys that transformers writes, that are in no table, and that change no output.
WITHOUT_EFFECT = {
    "deterministic_flash_attn", "onnx_export", "pretraining_tp", "sinusoidal_pos_embds", "sparse_prediction",
    "vocab_list",
}  # fmt: skip
GENERATION_WITHOUT_EFFECT = {
    "assistant_confidence_threshold", "assistant_early_exit", "assistant_ensemble_weight", "assistant_lookbehind",
    "cache_config", "cache_implementation", "compile_config", "continuous_batching_config", "disable_compile",
    "is_assistant", "low_memory", "max_cache_len", "max_matching_ngram_size", "max_time", "num_assistant_tokens",
    "num_assistant_tokens_schedule", "output_logits", "output_scores", "prefill_chunk_size",
    "prompt_lookup_num_tokens", "return_dict_in_generate", "speculation_type", "target_lookbehind", "use_mtp",
}  # fmt: skip
# What tools and accidents put under a key.
VALUES = (
    None, True, False, 0, 1, -1, 10**9, 10**12, 10**400, 1.5, float("nan"), float("inf"), -float("inf"), 1e-320, "",
    "1", "1e-12", "x" * 5000, "\x1b[31m", [], [1], [[]], ["BertModel"], [None], {},
    {"0": "a"}, {"a": 0}, {"a": {"b": [1]}}, {"0": None}, {"rope_type": "yarn"}, {"rope_theta": "x"},
    {"full_attention": 5}, {"full_attention": {"rope_theta": []}}, ["sliding_attention"] * 10,
)  # fmt: skip


def written(family: str) -> dict:
    """A config.json of a family, as `to_hf` writes it."""
    return BertConfig.named("tiny", family, num_labels=3, id2label=("no", "yes", "maybe")).to_hf()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("family", FAMILIES)
def test_any_value_of_any_key_is_read_or_refused_in_one_line(family, caplog):
    base, refused = written(family), 0
    for key in {key.name for key in config_keys(family) if key.fate == "honoured"} | base.keys():
        for value in VALUES:
            try:
                BertConfig.from_hf(base | {key: value})
            except InputError as error:
                refused += 1
                assert "\n" not in str(error) and "\x1b" not in str(error) and len(str(error)) <= 500
    assert refused > 300  # of some 1,000


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layer_norm_eps": "1e-12"}, "layer_norm_eps must be a non-negative number, found '1e-12'"),
        ({"layer_norm_eps": float("nan")}, "layer_norm_eps must be a non-negative number, found nan"),
        ({"initializer_range": -0.02}, "initializer_range must be a non-negative number, found -0.02"),
        ({"hidden_size": 128.0}, "hidden_size must be a positive integer, found 128.0"),
        ({"num_attention_heads": True}, "num_attention_heads must be a positive integer, found True"),
        ({"vocab_size": 10**12}, "vocab_size must be at most 2147483647, found 1000000000000"),
        ({"hidden_dropout_prob": [0.1]}, r"hidden_dropout_prob must be a rate in \[0, 1\), found \[0.1\]"),
        ({"tie_word_embeddings": None}, "tie_word_embeddings must be true or false, found None"),
        ({"architectures": 3}, "architectures: expected a list of class names, found 3"),
        ({"architectures": {"BertModel": 1}}, "architectures: expected a list of class names, found {'BertModel': 1}"),
        ({"model_type": ["bert"]}, r"model_type \['bert'\] is not supported; did you mean 'bert'"),
        ({"is_decoder": True}, "is_decoder: expected False, found True: decoders are not supported"),
        ({"pruned_heads": {"0": [1]}}, "pruned_heads: expected {} or .*found {'0'"),
        (
            {"quantization_config": {"bits": 4}},
            "quantization_config: expected one written by `bert-jax quantize` .* found {'bits': 4}",
        ),
        ({"problem_type": "binary"}, "problem_type 'binary' is not known"),
    ],
)
def test_a_value_that_its_key_cannot_have(change, message):
    with pytest.raises(InputError, match=f"^config.json: {message}"):
        BertConfig.from_hf(written("bert") | change)


def test_two_names_of_one_size_agree():
    hf = written("distilbert")
    assert BertConfig.from_hf(hf | {"num_attention_heads": 2}) == BertConfig.from_hf(hf)
    with pytest.raises(InputError, match="num_attention_heads: expected n_heads, 2, found 1"):
        BertConfig.from_hf(hf | {"num_attention_heads": 1})


def test_two_names_of_one_size_agree_in_a_nomicbert():
    with pytest.raises(InputError, match="n_head: expected num_attention_heads, 2, found 1"):
        BertConfig.from_hf(written("nomic_bert") | {"n_head": 1})


def test_the_message_names_the_key_of_the_file():
    with pytest.raises(InputError, match=r"config\.json: n_layers must be a non-negative integer, found '6'"):
        BertConfig.from_hf(written("distilbert") | {"n_layers": "6"})


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({}, (None, None)),
        ({"num_labels": 4}, (4, None)),
        ({"id2label": {"1": "b", "0": "a"}}, (2, ("a", "b"))),
        ({"id2label": {0: "a", 1: "b"}, "num_labels": 2, "label2id": {"a": 0, "b": 1}}, (2, ("a", "b"))),
        ({"id2label": {str(i): f"LABEL_{i}" for i in range(12)}}, (12, None)),
        ({"id2label": {"0": "a", "1": "b"}, "label2id": {"LABEL_0": 0, "LABEL_1": 1}}, (2, ("a", "b"))),
        ({"id2label": {"0": "a", "1": "b"}, "label2id": {"a": "0", "b": "1"}}, (2, ("a", "b"))),
        ({"label2id": {"b": 1, "a": 0}}, (2, ("a", "b"))),
    ],
)
def test_classes(content, expected):
    assert read_classes(content, "config.json") == expected


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            {"id2label": ["a", "b"]},
            r"id2label: expected an object that maps class numbers to names, found \['a', 'b'\]",
        ),
        ({"id2label": {"1": "a", "2": "b"}}, "expected the numbers 0 to 1, found 2 but no 0"),
        ({"id2label": {"a": "0"}}, "expected the numbers 0, 1, ... as keys, found 'a'"),
        ({"id2label": {"0": "a", "00": "b"}}, "expected each number once, found 0 twice"),
        ({"id2label": {"0": True}}, "expected a name for class 0, found True"),
        ({"id2label": {"0": "a", "1": "b"}, "num_labels": 3}, "num_labels is 3, but id2label names 2 classes"),
        ({"id2label": {"0": "a", "1": "b"}, "label2id": {"a": 1, "b": 0}}, "label2id: expected 0 for 'a' .*found 1"),
        ({"id2label": {"0": "a"}, "label2id": {"a": 0.0}}, "label2id: expected a number for 'a', found 0.0"),
        ({"num_labels": 10**9}, "num_labels: expected 1 to 1000000, found 1000000000"),
        ({"num_labels": "2"}, "num_labels: expected 1 to 1000000, found '2'"),
    ],
)
def test_classes_that_nothing_can_be_made_of(content, message):
    with pytest.raises(InputError, match=message):
        read_classes(content, "config.json")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"model_type": "roberta"}, "roberta"),
        ({"architectures": ["RobertaModel"]}, "roberta"),
        ({"architectures": ["XLMRobertaForMaskedLM"]}, "xlm-roberta"),
        ({"architectures": ["TFDistilBertModel"]}, "distilbert"),
        ({"model_type": "xlm-roberta", "architectures": ["RobertaModel"]}, "xlm-roberta"),
        ({"model_type": "bert", "architectures": ["SomethingOfMyOwn"]}, "bert"),
    ],
)
def test_the_family_is_said_by_model_type_or_architectures(content, expected):
    assert family_of(content) == expected


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "expected a model_type, found none"),
        ({"architectures": ["SomethingOfMyOwn"]}, "found none, and architectures .* do not imply it"),
        ({"model_type": "bert", "architectures": ["RobertaModel"]}, "model_type is 'bert', but architectures are"),
        ({"model_type": "gpt2"}, "model_type 'gpt2' is not supported"),
    ],
)
def test_a_family_is_never_assumed(content, message):
    with pytest.raises(InputError, match=message):
        family_of(content)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_read_and_not_refused_is_written_again(family, caplog):
    hf = written(family)
    harmless = {key.name: "something" for key in config_keys(family) if key.fate == "harmless"}
    hf = {"my_own_key": {"a": [1]}} | dict.fromkeys(USUAL_KEYS, "something") | harmless | hf
    back = BertConfig.from_hf(hf).replace(num_labels=2, id2label=("x", "y")).to_hf()
    kept = {key: value for key, value in hf.items() if key not in NOT_CARRIED}
    changed = {"id2label": {"0": "x", "1": "y"}, "label2id": {"x": 0, "y": 1}}
    assert {key: back[key] for key in kept} == kept | changed
    assert json.loads(json.dumps(back)) == back


def test_keys_that_nobody_knows_are_named_once(caplog):
    hf = written("bert") | {"my_own_key": 5, "another": "x", "empty": None, "transformers_version": "5.0"}
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            BertConfig.from_hf(hf, where="a/config.json")
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", "a/config.json: 2 keys are not read: my_own_key, another")
    ]


@pytest.mark.parametrize(
    ("family", "key", "value"),
    [
        ("bert", "rope_theta", 1e4),
        ("bert", "sliding_window", 128),
        ("bert", "num_key_value_heads", 1),
        ("bert", "layer_types", ["sliding_attention"]),
        ("roberta", "attention_window", 4),
        ("modernbert", "rotary_emb_base", 500.0),
        ("gte", "position_buckets", 256),
    ],
)
def test_a_key_of_another_family_causes_a_warning(family, key, value, caplog):
    BertConfig.from_hf(written(family) | {key: value}, where=f"{family}/config.json")
    assert [record.getMessage() for record in caplog.records] == [
        f"{family}/config.json: unknown keys are ignored: {key}={value!r}"
    ]


@pytest.mark.parametrize("family", ["bert", "distilbert", "modernbert", "deberta-v2"])
def test_each_misspelt_key_causes_a_warning(family, caplog):
    tables = {key.name for key in config_keys(family)}
    for key in sorted(FAMILIES[family].keys.values()):
        if len(key) < 6:  # one letter of `dim` is a third of it
            continue
        caplog.clear()
        for wrong in {key[:2] + key[3:], key[:3] + key[2:], key + "s", f"_{key}"} - tables:
            BertConfig.from_hf(written(family) | {wrong: "x"}, where=f"{family}/{wrong}")
            assert f"{wrong}='x'" in caplog.text, wrong


def test_an_activation_keeps_the_name_that_it_had():
    hf = written("bert") | {"hidden_act": "gelu_fast"}
    config = BertConfig.from_hf(hf)
    assert config.hidden_act == "gelu_tanh" and config.to_hf()["hidden_act"] == "gelu_fast"
    assert config.replace(hidden_act="relu").to_hf()["hidden_act"] == "relu"


@pytest.mark.parametrize("table", [*(config_keys(family) for family in FAMILIES), ENCODER_DECODER_GENERATION, ADAPTER])
def test_a_table_has_each_key_once(table):
    names = [key.name for key in table]
    assert len(set(names)) == len(names), sorted(name for name in names if names.count(name) > 1)


def test_the_tables_know_every_key_that_transformers_writes():
    transformers = pytest.importorskip("transformers", reason="its configs are the list of keys")
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    for family in FAMILIES:
        if family not in CONFIG_MAPPING:  # such as NeoBERT, whose code is beside its weights
            continue
        known = {key.name for key in config_keys(family)} | USUAL_KEYS | WITHOUT_EFFECT
        assert CONFIG_MAPPING[family]().to_dict().keys() <= known, family
        assert {field.name for field in dataclasses.fields(CONFIG_MAPPING[family])} <= known, family
    known = {key.name for key in ENCODER_DECODER_GENERATION} | USUAL_KEYS | GENERATION_WITHOUT_EFFECT
    assert transformers.GenerationConfig().to_dict().keys() <= known


def test_the_table_knows_every_key_of_a_lora_adapter():
    peft = pytest.importorskip("peft", reason="its LoraConfig is the list of keys")
    known = {key.name for key in ADAPTER} | USUAL_KEYS
    assert {field.name for field in dataclasses.fields(peft.LoraConfig)} <= known
