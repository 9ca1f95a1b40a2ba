"""Classifiers over sentence embeddings: folders that sentence-transformers opens as a CrossEncoder, and theirs."""

import json

import numpy as np
import pytest
from random_models import normal_params

import bert_jax
from bert_jax.config import BertConfig
from bert_jax.config.values import EmbeddingLayer
from bert_jax.conversion.convert import convert
from bert_jax.conversion.huggingface import load_pretrained, save_pretrained
from bert_jax.conversion.text_settings import TextSettings
from bert_jax.errors import InputError

TEXTS = ["the cat sat on the tree", "a red house", "two birds"]
LAYERS = (EmbeddingLayer("dense", 64, 24, activation="tanh"), EmbeddingLayer("layer_norm", 24, 24))
HEAD = "sequence_classification"


def write(folder, tokenizer, family="bert", settings=None, **fields):
    named = {"id2label": ("bad", "good", "so so"), "num_labels": 3, "classifies_embedding": True, "pooler": False}
    named["pad_token_id"] = tokenizer.pad_id
    size = {"vocab_size": tokenizer.vocab_size, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = BertConfig.named("tiny", family, intermediate_size=64, **size, **named | fields)
    save_pretrained(folder, config, HEAD, normal_params(config, HEAD, 0.3), tokenizer, settings=settings)
    return folder


@pytest.fixture
def folder(tmp_path, tiny_tokenizer):
    settings = TextSettings(prompts=(("query", "the "),), default_prompt="query", max_length=12)
    fields = {"pooling": "cls+mean", "embedding_layers": LAYERS}
    return write(tmp_path / "model", tiny_tokenizer, settings=settings, **fields)


def by_theirs(folder, texts):
    cross_encoder = pytest.importorskip("sentence_transformers").CrossEncoder(str(folder), device="cpu")
    return cross_encoder, np.stack([cross_encoder.predict(text) for text in texts])


@pytest.mark.oracle
def test_sentence_transformers_gives_the_same_logits(folder):
    model = bert_jax.from_pretrained(folder)
    assert model.head == HEAD and model.config.classifies_embedding and model.settings.max_length == 12
    cross_encoder, expected = by_theirs(folder, TEXTS)
    ours = np.asarray(model(["the " + text for text in TEXTS]).logits)
    np.testing.assert_allclose(ours, expected, atol=2e-5)
    assert [type(module).__name__ for module in cross_encoder][-2:] == ["Normalize", "Dense"]
    assert cross_encoder.num_labels == 3 and cross_encoder.config.id2label[1] == "good"
    answers = bert_jax.pipeline("text-classification", folder)(TEXTS, top_k=None)
    names = [answer[0]["label"] for answer in answers]
    assert names == [model.config.label_names[i] for i in expected.argmax(1)]


def test_their_own_files_open(folder, tmp_path):
    cross_encoder, expected = by_theirs(folder, TEXTS)
    cross_encoder.save_pretrained(str(tmp_path / "theirs"))
    model = bert_jax.from_pretrained(tmp_path / "theirs")
    np.testing.assert_allclose(np.asarray(model(["the " + text for text in TEXTS]).logits), expected, atol=2e-5)


def test_the_embedding_opens_too(folder):
    loaded = load_pretrained(folder, "sentence_embedding")
    assert loaded.config.pooling == "cls+mean" and loaded.config.embedding_layers == LAYERS
    assert not loaded.missing and loaded.settings.default_prompt == "query"
    assert np.asarray(bert_jax.pipeline("sentence-embedding", folder)(TEXTS)).shape == (3, 24)


def test_a_copy_has_the_same_bits(folder, tmp_path):
    convert(folder, tmp_path / "copy", lambda _: None)
    for name in ("model.safetensors", "5_Dense/model.safetensors", "modules.json", "config.json"):
        assert (tmp_path / "copy" / name).read_bytes() == (folder / name).read_bytes(), name


@pytest.mark.sampled(4)
@pytest.mark.parametrize("family", ["roberta", "modernbert", "distilbert", "electra", "mpnet", "deberta-v2", "gte"])
def test_families(family, tmp_path, tiny_tokenizer):
    folder = write(tmp_path / "model", tiny_tokenizer, family)
    loaded = load_pretrained(folder)
    assert loaded.head == HEAD and loaded.config.classifies_embedding and not loaded.missing and not loaded.unused
    assert loaded.params["classifier"]["kernel"].shape == (32, 3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"out_features": 4}, r"5_Dense.config.json: out_features: expected 3 classes, found 4"),
        ({"activation_function": "torch.nn.modules.activation.Tanh"}, "expected a bias, no activation"),
        ({"module_output_name": "sentence_embedding"}, "module_output_name"),
    ],
)
def test_folders_that_do_not_fit(folder, changes, message):
    path = folder / "5_Dense" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(InputError, match=message):
        load_pretrained(folder)
