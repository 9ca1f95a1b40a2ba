"""The sentence-transformers layout: read in its older and newer forms, written so that it reads it."""

import json

import numpy as np
import pytest

from bert_jax.config import BertConfig
from bert_jax.conversion.huggingface import load_pretrained, save_pretrained
from bert_jax.conversion.text_settings import TextSettings
from bert_jax.errors import InputError
from bert_jax.modeling import Bert

CONFIG = BertConfig(
    vocab_size=31,
    hidden_size=8,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=12,
    max_position_embeddings=10,
)


def save(path, config=CONFIG, **kwargs):
    import jax

    params = jax.tree.map(np.asarray, Bert(config, "sentence_embedding").init(jax.random.key(0)))
    save_pretrained(path, config, "sentence_embedding", params, **kwargs)
    return path


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
@pytest.mark.parametrize("normalize", [True, False])
def test_round_trip(tmp_path, pooling, normalize):
    config = CONFIG.replace(pooling=pooling, normalize_embeddings=normalize)
    loaded = load_pretrained(save(tmp_path / "model", config, settings=TextSettings(max_length=7)))
    assert loaded.head == "sentence_embedding" and loaded.config == config and loaded.settings.max_length == 7
    assert loaded.missing == loaded.unused == []


def test_newer_files(tmp_path):
    path = save(tmp_path / "model")
    (path / "1_Pooling" / "config.json").write_text(json.dumps({"embedding_dimension": 8, "pooling_mode": "cls"}))
    (path / "sentence_bert_config.json").write_text(json.dumps({"transformer_task": "feature-extraction"}))
    loaded = load_pretrained(path)
    assert loaded.config.pooling == "cls" and loaded.settings.max_length is None


def test_folders_that_keep_the_transformer_one_floor_down(tmp_path):
    path = save(tmp_path / "model")
    (path / "0_Transformer").mkdir()
    for name in ("model.safetensors", "config.json"):
        (path / name).rename(path / "0_Transformer" / name)
    modules = json.loads((path / "modules.json").read_text())
    modules[0]["path"] = "0_Transformer"
    (path / "modules.json").write_text(json.dumps(modules))
    loaded = load_pretrained(path)
    assert loaded.head == "sentence_embedding" and loaded.directory.name == "0_Transformer"


@pytest.mark.parametrize(
    ("pooling", "message"),
    [
        ({"pooling_mode": "median"}, "pooling_mode: expected cls, .*, found 'median'"),
        ({"pooling_mode": ["cls", 3]}, "pooling_mode: expected cls, .*, found "),
        ({"pooling_mode_cls_token": "yes"}, "pooling_mode_cls_token must be true or false, found 'yes'"),
        ({"word_embedding_dimension": 9}, "word_embedding_dimension: expected 8 as config.json says, found 9"),
        ({}, "expected pooling_mode, found none"),
    ],
)
def test_poolings_that_we_have_not(tmp_path, pooling, message):
    path = save(tmp_path / "model")
    (path / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    with pytest.raises(InputError, match=message):
        load_pretrained(path)
    assert load_pretrained(path, head="encoder").missing == []  # which has no use for it


def test_modules_that_we_have_not(tmp_path):
    path = save(tmp_path / "model")
    modules = json.loads((path / "modules.json").read_text())
    for kind in (
        "models.CNN", "models.LSTM", "models.BoW", "models.WordEmbeddings", "models.WordWeights", "models.CLIPModel",
        "models.WeightedLayerPooling", "sparse_encoder.modules.SparseAutoEncoder", "base.modules.router.Router",
        "cross_encoder.modules.LogitScore",
    ):  # fmt: skip
        other = {"idx": 3, "name": "3", "path": "3_Other", "type": f"sentence_transformers.{kind}"}
        (path / "modules.json").write_text(json.dumps([*modules, other]))
        with pytest.raises(
            InputError, match=f"expected Transformer, Pooling, .*, found 'sentence_transformers.{kind}': [a-z]"
        ):
            load_pretrained(path)
    dense = {"path": "3_Dense", "type": "sentence_transformers.models.Dense"}
    (path / "3_Dense").mkdir()
    (path / "3_Dense" / "config.json").write_text(json.dumps({"in_features": 7, "out_features": 3}))
    for listed, message in (
        ([*modules, dense], "expected 8 inputs, the output size of the module before, found 7"),
        ([modules[0], dense, modules[1]], "expected a Transformer, a Pooling, and then .*, found Transformer, Dense"),
        ([modules[1]], "expected a Transformer, a Pooling, and then .*, found Pooling"),
        ([modules[0] | {"type": "custom_st.Transformer"}, modules[1]], "found 'custom_st.Transformer'"),
        ([modules[0] | {"kwargs": ["other"]}, modules[1]], r"module 0: kwargs: expected \[\] or .*, found \['other'\]"),
        ([modules[0] | {"path": "../elsewhere"}], "leads out of the directory"),
        ([{"path": ""}], "expected a list of modules"),
        (3, "expected a list of modules"),
    ):
        (path / "modules.json").write_text(json.dumps(listed))
        with pytest.raises(InputError, match=message):
            load_pretrained(path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("sentence_bert_config.json", {"max_seq_length": "128"}, "max_seq_length must be a positive"),
        ("sentence_bert_config.json", {"do_lower_case": 1}, "do_lower_case must be true or false, found 1"),
        ("sentence_bert_config.json", {"query_length": 32}, "query_length: expected none, found 32: only multi-vector"),
        ("sentence_bert_config.json", {"tokenizer_args": {"padding_side": "left"}}, "padding_side: expected 'right'"),
        ("config_sentence_transformers.json", {"prompts": {"query": 3}}, "an object that maps names to strings"),
        ("config_sentence_transformers.json", {"default_prompt_name": "s2s", "prompts": {"q": "x"}},
         r"default_prompt_name: expected one of the prompts \(q\), found 's2s'"),
        ("config_sentence_transformers.json", {"similarity_fn_name": "cosin"}, "found 'cosin'; did you mean 'cosine'"),
        ("config_sentence_transformers.json", {"truncate_dim": 0}, "truncate_dim must be a positive"),
        ("config_sentence_transformers.json", {"model_type": "SparseEncoder"}, "expected an MLMTransformer and"),
    ],
)  # fmt: skip
def test_values_that_mean_nothing_here(tmp_path, name, content, message):
    path = save(tmp_path / "model")
    (path / name).write_text(json.dumps(content))
    with pytest.raises(InputError, match=message):
        load_pretrained(path)


def test_keys_that_are_not_known_are_named_once(tmp_path, caplog):
    path = save(tmp_path / "model")
    (path / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": "cls", "gating": "soft"}))
    for _ in range(2):
        assert load_pretrained(path).config.pooling == "cls"
    assert [r.getMessage().split(": ", 1)[1] for r in caplog.records] == ["unknown keys are ignored: gating='soft'"]
