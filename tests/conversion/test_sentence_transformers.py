"""The sentence-transformers layout: read in its older and newer forms, written so that it reads it."""

import json

import numpy as np
import pytest

from bert_jax.config import BertConfig
from bert_jax.conversion.huggingface import load_pretrained, save_pretrained
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
    loaded = load_pretrained(save(tmp_path / "model", config, max_length=7))
    assert loaded.head == "sentence_embedding" and loaded.config == config and loaded.max_length == 7
    assert loaded.missing == loaded.unused == []


def test_newer_files(tmp_path):
    path = save(tmp_path / "model")
    (path / "1_Pooling" / "config.json").write_text(json.dumps({"embedding_dimension": 8, "pooling_mode": "cls"}))
    (path / "sentence_bert_config.json").write_text(json.dumps({"transformer_task": "feature-extraction"}))
    loaded = load_pretrained(path)
    assert loaded.config.pooling == "cls" and loaded.max_length is None


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
        ({"pooling_mode_weightedmean_tokens": True}, "found weightedmean"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}, "found cls, mean"),
        ({"pooling_mode": ["cls", "max"]}, "found cls, max"),
    ],
)
def test_poolings_that_we_have_not(tmp_path, pooling, message):
    path = save(tmp_path / "model")
    (path / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    with pytest.raises(InputError, match=f"expected one pooling of mean, cls and max, {message}"):
        load_pretrained(path)
    assert load_pretrained(path, head="encoder").missing == []  # which has no use for it


def test_modules_that_we_have_not(tmp_path):
    path = save(tmp_path / "model")
    modules = json.loads((path / "modules.json").read_text())
    dense = {"idx": 3, "name": "3", "path": "3_Dense", "type": "sentence_transformers.models.Dense"}
    for listed, message in (
        ([*modules, dense], "expected Transformer, Pooling and Normalize, found 'sentence_transformers.models.Dense'"),
        ([modules[0] | {"path": "../elsewhere"}], "leads out of the folder"),
        ([{"path": ""}], "expected a list of modules"),
        (3, "expected a list of modules"),
    ):
        (path / "modules.json").write_text(json.dumps(listed))
        with pytest.raises(InputError, match=message):
            load_pretrained(path)
