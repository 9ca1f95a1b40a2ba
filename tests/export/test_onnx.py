"""ONNX graphs of every family and head in onnxruntime, against the model in JAX."""

import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from bert_jax.config import BertConfig
from bert_jax.config.positions import AbsoluteConfig, RotaryConfig
from bert_jax.config.values import EmbeddingLayer
from bert_jax.errors import InputError
from bert_jax.export.signature import as_int64, example_inputs, forward, signature_of
from bert_jax.families import FAMILIES
from bert_jax.modeling import HEADS, Bert, Compute

pytest.importorskip("onnx", reason="needs onnx: pip install 'bert-jax[onnx]'")
onnxruntime = pytest.importorskip("onnxruntime", reason="needs onnxruntime: pip install 'bert-jax[onnx]'")

from bert_jax.export.onnx import model as onnx_models  # noqa: E402

SHAPE = {
    "vocab_size": 31, "hidden_size": 8, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 12,
    "max_position_embeddings": 12, "pad_token_id": 1, "num_labels": 3,
}  # fmt: skip
LOCAL = {"local_window": 2}  # of a ModernBERT, so that short sequences are longer than the window


def small_model(family="bert", head="encoder", **fields):
    """A model whose parameters are large enough for every one of them to show in its outputs."""
    more = {
        "modernbert": LOCAL, "albert": {"num_hidden_groups": 2}, "big_bird": {"sep_token_id": 4},
        "longformer": {"attention_windows": (2, 3), "max_global_tokens": 4, "sep_token_id": 4},
        "mobilebert": {"embedding_size": 4, "intra_bottleneck_size": 6, "num_feedforward_networks": 3},
    }.get(family, {})  # fmt: skip
    config = BertConfig.named("tiny", family, **SHAPE | more | fields)
    bert, generator = Bert(config, head, Compute(attention="xla")), np.random.default_rng(0)
    params = jax.tree.map(lambda leaf: generator.normal(0, 0.4, leaf.shape).astype(np.float32), bert.abstract_params())
    return bert, params


def in_onnxruntime(model, inputs):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return dict(
        zip([output.name for output in session.get_outputs()], session.run(None, as_int64(inputs)), strict=True)
    )


def assert_same(bert, params, *shapes, dtype="float32", within=1e-5):
    model = onnx_models.onnx_model(bert.config, bert.head, params, dtype)
    for shape in shapes:
        inputs = example_inputs(bert.config, bert.head, shape)
        expected = jax.jit(forward, static_argnums=0)(bert, params, inputs)
        found = in_onnxruntime(model, inputs)
        assert list(found) == list(signature_of(bert.config, bert.head).outputs)
        for name, values in found.items():
            assert values.dtype == np.float32
            np.testing.assert_allclose(values, expected[name], rtol=0, atol=within, err_msg=name)


@pytest.mark.sampled(15)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_at_any_batch_and_length(family):
    assert_same(*small_model(family), (1, 1), (3, 11))


def test_tied_layers_share_their_parameters():
    bert, params = small_model("albert", embedding_size=4)
    names = [tensor.name for tensor in onnx_models.onnx_model(bert.config, bert.head, params).graph.initializer]
    assert [name for name in names if "mlp.up.kernel" in name] == [f"encoder.layers.{i}.mlp.up.kernel" for i in (0, 1)]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("head", [head for head in HEADS if head not in ("encoder", "zero_shot_ner")])
def test_every_head(head):
    assert_same(*small_model("bert", head), (3, 2, 9) if head == "multiple_choice" else (3, 9))


@pytest.mark.parametrize("family, head", [("roberta", "sequence_classification"), ("modernbert", "question_answering")])
def test_heads_with_a_layer_of_their_own(family, head):
    assert_same(*small_model(family, head), (3, 9))


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "head", ["sequence_classification", "question_answering", "multiple_choice", "token_classification"]
)
def test_heads_with_global_tokens(head):
    """Rows with separators and without, with fewer tokens of global attention than there is room for and with more."""
    assert_same(*small_model("longformer", head), (6, 2, 11) if head == "multiple_choice" else (6, 11))


@pytest.mark.parametrize("head", ["question_answering", "sequence_classification", "masked_lm"])
def test_heads_of_big_bird(head):
    assert_same(*small_model("big_bird", head, qkv_bias=False, rescale_embeddings=True), (4, 9))


def test_block_sparse_attention_is_refused():
    bert, params = small_model("big_bird", max_position_embeddings=24, block_size=4, num_random_blocks=0)
    with pytest.raises(InputError, match=r"expected original_full to export a model for any .*; up to 20 tokens both"):
        onnx_models.onnx_model(bert.config, bert.head, params)


def test_a_mean_before_the_classifier_and_a_decoder_of_its_own():
    assert_same(*small_model("modernbert", "sequence_classification", classifier_pooling="mean"), (3, 9))
    assert_same(*small_model("modernbert", "masked_lm", tie_word_embeddings=False), (3, 9))


@pytest.mark.parametrize(
    "pooling, skip", [("cls+max", 2), ("mean_sqrt_len_tokens+weightedmean", 1), ("lasttoken+mean", 4)]
)
def test_every_pooling(pooling, skip):
    """A skip of 4 leaves no token of the row with 4, whose vectors are then 0."""
    fields = {"pooling": pooling, "pooling_skip": skip, "num_hidden_layers": 1}
    assert_same(*small_model("bert", "sentence_embedding", **fields), (2, 9))


def test_layers_after_the_pooling():
    layers = (
        EmbeddingLayer("dense", 8, 6, activation="tanh", residual=True),
        EmbeddingLayer("layer_norm", 6, 6),
        EmbeddingLayer("dropout", 6, 6, rate=0.5),
        EmbeddingLayer("normalize", 6, 6),
        EmbeddingLayer("dense", 6, 6, bias=False, residual=True),
    )
    bert, params = small_model("bert", "sentence_embedding", embedding_layers=layers, normalize_embeddings=False)
    assert_same(bert, params, (2, 9))


@pytest.mark.parametrize(
    "fields",
    [
        {"conv_kernel_size": 3, "conv_act": "gelu", "share_att_key": False, "position_buckets": 0},
        {"pos_att_type": ("c2p",), "norm_rel_ebd": False, "embedding_size": 6, "max_relative_positions": 5,
         "position_buckets": 4},
    ],
)  # fmt: skip
def test_switches_of_disentangled_attention(fields):
    assert_same(*small_model("deberta-v2", **fields), (2, 1), (3, 11))


@pytest.mark.parametrize("kind", ["rotary", "absolute"])
def test_dropped_tokens(kind):
    """The inputs have the mask token, whose id is 5, in some rows."""
    positions = {"rotary": RotaryConfig(stored_rotation=True), "absolute": AbsoluteConfig(2)}[kind]
    fields = {"positions": positions, "mask_token_id": 5, "embedding_norm": kind == "absolute"}
    bert, params = small_model("esm", "masked_lm", **fields)
    assert 5 in example_inputs(bert.config, bert.head, (3, 9))["input_ids"]
    assert_same(bert, params, (3, 9))


@pytest.mark.parametrize("pooling", ["cls", "mean", "late"])
def test_shared_keys_and_late_pooling(pooling):
    fields = {"num_attention_heads": 4, "num_key_value_heads": 2, "classifier_pooling": pooling}
    assert_same(*small_model("eurobert", "sequence_classification", **fields), (3, 9))


def test_values_that_rotate():
    assert_same(*small_model("roformer", "masked_lm", rotary_value=True, embedding_size=4), (3, 9))


@pytest.mark.parametrize(
    "head, fields",
    [
        ("pretraining", {"pooler_dense": False}),
        ("masked_lm", {"use_bottleneck_attention": True, "trigram_input": False, "norm": "layer_norm"}),
        ("multiple_choice", {"intra_bottleneck_size": 0, "num_feedforward_networks": 1}),
        ("encoder", {"key_query_shared_bottleneck": False, "intra_bottleneck_size": 8, "pooler_dense": False}),
    ],
)
def test_switches_of_mobilebert(head, fields):
    assert_same(*small_model("mobilebert", head, **fields), (2, 2, 9) if head == "multiple_choice" else (3, 9))


def test_a_masked_lm_head_without_a_transform():
    assert_same(*small_model("eurobert", "masked_lm"), (3, 9))
    assert_same(*small_model("eurobert", "masked_lm", tie_word_embeddings=True), (3, 9))


def test_the_discriminator_of_deberta():
    assert_same(*small_model("deberta-v2", "replaced_token_detection"), (2, 1), (3, 11))


def test_slopes_of_heads_whose_number_is_no_power_of_2():
    assert_same(*small_model("jina-bert", num_attention_heads=3, hidden_size=12), (2, 1), (3, 11))


def test_switches_that_no_family_sets():
    fields = {"norm": "rms_norm", "norm_bias": False, "position_embedding_type": "sinusoidal", "head_dim": 6}
    assert_same(*small_model("bert", **fields), (2, 9))


OF_ANOTHER_PACKAGE = """
from running_mean import RunningMeanConfig
from test_onnx import assert_same, small_model

assert_same(*small_model("bert", "masked_lm", feed_forward=RunningMeanConfig()), (3, 9))
"""


def test_a_part_of_another_package(tmp_path):
    """The part of docs/extend.md, in a process of its own, as parts are known by their classes."""
    page = (Path(__file__).parents[2] / "docs/extend.md").read_text()
    (code,) = [block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "class RunningMean(" in block]
    (tmp_path / "running_mean.py").write_text(code)
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parent), *sys.path])
    subprocess.run([sys.executable, "-c", OF_ANOTHER_PACKAGE], env=os.environ | {"PYTHONPATH": path}, check=True)


@pytest.mark.parametrize("family, head", [("bert", "sentence_embedding"), ("modernbert", "masked_lm")])
def test_float16(family, head):
    assert_same(*small_model(family, head), (3, 9), dtype="float16", within=0.1)


def test_the_opset_and_the_names_are_said():
    bert, params = small_model("bert", "question_answering", num_hidden_layers=1)
    model = onnx_models.onnx_model(bert.config, bert.head, params)
    assert [(opset.domain, opset.version) for opset in model.opset_import] == [("", 17)]
    assert [value.name for value in model.graph.input] == ["input_ids", "attention_mask", "token_type_ids"]
    sizes = [dim.dim_param for dim in model.graph.input[0].type.tensor_type.shape.dim]
    assert sizes == ["batch_size", "sequence_length"]
    names = {tensor.name for tensor in model.graph.initializer}
    assert {"encoder.layers.0.attention.query.kernel", "embeddings.word_embeddings", "qa_outputs.bias"} <= names


def test_a_sequence_that_is_too_long_is_an_error():
    bert, params = small_model("bert", num_hidden_layers=1)
    with pytest.raises(Exception, match="ONNXRuntimeError"):
        in_onnxruntime(
            onnx_models.onnx_model(bert.config, bert.head, params), example_inputs(bert.config, "encoder", (1, 13))
        )


def test_large_models_have_their_parameters_in_a_second_file(tmp_path, monkeypatch):
    from bert_jax import storage

    monkeypatch.setattr(onnx_models, "MOST_BYTES_INSIDE", 0)
    bert, params = small_model("bert", vocab_size=400)
    onnx_models.write_onnx(
        onnx_models.onnx_model(bert.config, bert.head, params), storage.Path(tmp_path / "model.onnx")
    )
    assert (tmp_path / "model.onnx_data").stat().st_size >= 400 * 8 * 4
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    inputs = example_inputs(bert.config, bert.head, (2, 9))
    expected = jax.jit(forward, static_argnums=0)(bert, params, inputs)
    np.testing.assert_allclose(session.run(None, as_int64(inputs))[0], expected["last_hidden_state"], atol=1e-5)
