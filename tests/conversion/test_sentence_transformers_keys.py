"""The tables of keys of sentence-transformers, walked: another value is honoured, harmless or refused by its name."""

import json

import pytest

from bert_jax.conversion.huggingface import load_pretrained
from bert_jax.errors import InputError
from bert_jax.model_files import sentence_transformers as tables

MODULES = [
    {"path": "", "type": "sentence_transformers.models.Transformer"},
    {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    {"path": "2_Dropout", "type": "sentence_transformers.models.Dropout"},
    {"path": "3_Normalize", "type": "sentence_transformers.models.Normalize"},
]
FILES = {
    "sentence_bert_config.json": tables.SENTENCE_BERT_CONFIG,
    "1_Pooling/config.json": tables.POOLING,
    "2_Dropout/config.json": tables.DROPOUT,
    "3_Normalize/config.json": tables.NORMALIZE,
    "config_sentence_transformers.json": tables.CONFIG_SENTENCE_TRANSFORMERS,
}
# Another value than the default of each key that is honoured: what it changes is compared elsewhere, with the library.
OTHER = {
    "max_seq_length": 7, "do_lower_case": True, "tokenizer_args": {"model_max_length": 7},
    "processor_kwargs": {"model_max_length": 7}, "pooling_mode": "max", "pooling_mode_cls_token": True,
    "pooling_mode_max_tokens": True, "pooling_mode_mean_tokens": False, "pooling_mode_mean_sqrt_len_tokens": True,
    "pooling_mode_weightedmean_tokens": True, "pooling_mode_lasttoken": True, "include_prompt": False,
    "embedding_dimension": 5, "word_embedding_dimension": 5, "dropout": 0.4, "model_type": "MultiVectorEncoder",
    "prompts": {"query": "x"}, "default_prompt_name": "query", "similarity_fn_name": "dot", "truncate_dim": 3,
    "model_args": {"x": 1}, "model_kwargs": {"x": 1}, "config_args": {"x": 1}, "config_kwargs": {"x": 1},
    "activation_fn": "torch.nn.Tanh", "max_active_dims": 5,
}  # fmt: skip
NO_CHANGE = ("model_args", "model_kwargs", "config_args", "config_kwargs", "pooling_mode_mean_tokens")


@pytest.fixture(scope="module")
def model(tmp_path_factory, write_small):
    path = write_small(tmp_path_factory.mktemp("keys") / "model", "sentence_embedding")
    (path / "modules.json").write_text(json.dumps(MODULES))
    for name in FILES:
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_text("{}")
    (path / "1_Pooling" / "config.json").write_text('{"word_embedding_dimension": 32}')
    return path


def opened(path, name, content):
    """The config and settings of the model whose file `name` has `content`, or the error."""
    before = (path / name).read_text()
    (path / name).write_text(json.dumps(json.loads(before) | content))
    try:
        loaded = load_pretrained(path)
        return loaded.config, loaded.settings
    except InputError as error:
        return str(error)
    finally:
        (path / name).write_text(before)


@pytest.mark.parametrize("name", FILES)
def test_every_key(model, name):
    plain = opened(model, name, {})
    assert not isinstance(plain, str), plain
    for key in FILES[name]:
        if key.fate == "refused":
            found = opened(model, name, {key.name: "another value"})
            assert isinstance(found, str) and key.name in found and "'another value'" in found
            for default in key.defaults[:2]:
                assert opened(model, name, {key.name: default}) == plain, key.name
        elif key.fate == "harmless":
            assert opened(model, name, {key.name: {"any": "value"}}) == plain, key.name
        else:
            found = opened(model, name, {key.name: OTHER[key.name]})
            assert (found == plain) == (key.name in NO_CHANGE), key.name
