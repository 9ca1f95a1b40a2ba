"""Quantized layers: products equal those of NumPy in integers, bit for bit; scales, packing, gradients."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from flax import nnx

from bert_jax.config import BertConfig
from bert_jax.config.quantization import KEEP, MODES, Quantization
from bert_jax.errors import InputError
from bert_jax.modeling import Bert, Compute
from bert_jax.modeling.layers import Dense
from bert_jax.modeling.quantized import (
    Quantizer,
    dequantize_params,
    pack_int4,
    quantize_module,
    quantize_params,
    unpack_int4,
)

CONFIG = BertConfig(
    vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
    max_position_embeddings=16,
)  # fmt: skip
IDS = jnp.arange(24, dtype=jnp.int32).reshape(2, 12)


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def rounded(x, axis, largest=127.5):
    """Quantized values and scales, by NumPy: the largest absolute value along `axis` over 127.5."""
    scale = (np.abs(x).max(axis, keepdims=True) / np.float32(largest)).astype(np.float32)
    bound = int(largest)
    return np.clip(np.round(x / scale), -bound - 1, bound).astype(np.int8), scale


def assert_rounded(values, scale, x, axis, largest=127.5):
    """Values and scales are those of NumPy. XLA's division is not exact: a value between two integers may be either."""
    expected, of_expected = rounded(x, axis, largest)
    np.testing.assert_allclose(scale, of_expected, rtol=1e-6)
    assert (np.asarray(values) != expected).mean() < 0.05
    np.testing.assert_allclose(np.asarray(values, np.int32), expected.astype(np.int32), atol=1)


def dense(mode, kernel):
    """A dense layer without bias that is quantized with `mode`."""
    layer = Dense(CONFIG, *kernel.shape, use_bias=False, rngs=nnx.Rngs(0))
    layer.kernel = nnx.Param(jnp.asarray(kernel))
    quantize_module(layer, Quantization(mode) if isinstance(mode, str) else mode)
    return layer


def applied(layer, x):
    return np.asarray(nnx.jit(lambda layer, x: layer(x, Compute()))(layer, jnp.asarray(x)))


def test_int8_by_int8_is_the_product_of_integers_and_then_scales():
    x, kernel = drawn(15, 32), drawn(32, 8, seed=1)
    layer = dense("int8_dynamic", kernel)
    inputs = jax.jit(lambda x: layer.kernel.quantizer.quantize_inputs(x, None))(x)
    weights = layer.kernel.values
    assert_rounded(inputs.qvalue, inputs.scale, x, -1)
    assert_rounded(weights["quantized"], weights["scale"], kernel, 0)
    exact = np.asarray(inputs.qvalue, np.int32) @ np.asarray(weights["quantized"], np.int32)
    expected = exact.astype(np.float32) * np.asarray(inputs.scale) * np.asarray(weights["scale"])
    np.testing.assert_array_equal(applied(layer, x), expected)


def test_static_inputs_have_one_scale_and_are_clipped():
    x, kernel = np.round(100 * drawn(3, 5, 32)), drawn(32, 8, seed=1)  # integers, which a scale of 1/2 doubles
    layer, scale = dense("int8_static", kernel), np.float32(0.5)
    layer.kernel.input_scale[...] = jnp.asarray([scale])
    inputs = np.clip(x * 2, -128, 127).astype(np.int32)
    assert (inputs == 127).any() and (inputs == -128).any()
    weights = layer.kernel.values
    exact = inputs @ np.asarray(weights["quantized"], np.int32)
    np.testing.assert_array_equal(applied(layer, x), exact.astype(np.float32) * scale * np.asarray(weights["scale"]))


def test_int8_weights_are_multiplied_in_float32():
    x, kernel = drawn(3, 32), drawn(32, 8, seed=1)
    layer = dense("int8", kernel)
    weights, scale = (np.asarray(layer.kernel.values[name], np.float64) for name in ("quantized", "scale"))
    np.testing.assert_allclose(applied(layer, x), x @ (weights * scale), rtol=1e-5, atol=1e-5)


def test_each_output_has_a_scale_of_its_own():
    kernel = drawn(32, 8) * 10.0 ** np.arange(8, dtype=np.float32)
    values = Quantizer(Quantization("int8")).quantize(jnp.asarray(kernel))
    assert_rounded(values["quantized"], values["scale"], kernel, 0)
    assert (np.abs(np.asarray(values["quantized"], np.int32)).max(0) >= 127).all()


def test_each_row_of_a_table_has_a_scale_of_its_own():
    table, ids = drawn(20, 32) * np.arange(1, 21, dtype=np.float32)[:, None], np.array([[3, 0], [19, 3]])
    quantizer = Quantizer(Quantization("int4"), table=True)
    values = quantizer.quantize(jnp.asarray(table))
    assert_rounded(values["quantized"], values["scale"], table, 1)
    rows, scale = (np.asarray(values[name], np.float32) for name in ("quantized", "scale"))
    np.testing.assert_array_equal(quantizer.rows(values, jnp.asarray(ids)), rows[ids] * scale[ids])


def test_int4_has_a_scale_for_each_group_of_inputs():
    kernel = drawn(64, 8)
    quantizer = Quantizer(Quantization("int4", group_size=16))
    values = quantizer.quantize(jnp.asarray(kernel))
    weights, scale = unpack_int4(values["packed"]).reshape(4, 16, 8), values["scale"][:, None]
    assert_rounded(weights, scale, kernel.reshape(4, 16, 8), 1, 7.5)
    assert values["packed"].shape == (32, 8) and values["packed"].dtype == jnp.uint8
    np.testing.assert_array_equal(quantizer.dequantize(values), (weights * scale).reshape(64, 8))


def test_packing_keeps_every_int4():
    values = np.array([[a, b] for a in range(-8, 8) for b in range(-8, 8)], np.int8).T  # all pairs that share a byte
    packed = pack_int4(jnp.asarray(values))
    assert packed.shape == (1, 256) and len(set(np.asarray(packed)[0].tolist())) == 256
    np.testing.assert_array_equal(unpack_int4(packed), values)


def test_float8_computes_right_on_a_cpu():
    x, kernel = drawn(3, 32), drawn(32, 8, seed=1)

    def rounded_float8(x, axis):
        scale = np.abs(x).max(axis, keepdims=True) / np.float32(448)
        return (x / scale).astype(ml_dtypes.float8_e4m3fn).astype(np.float64), scale

    (inputs, of_tokens), (weights, of_outputs) = rounded_float8(x, -1), rounded_float8(kernel, 0)
    expected = (inputs @ weights) * of_tokens * of_outputs
    np.testing.assert_allclose(applied(dense("fp8", kernel), x), expected, rtol=1e-5, atol=1e-5)


def test_the_gradient_of_rounding_is_that_of_the_identity():
    x, kernel, cotangent = drawn(3, 32), drawn(32, 8, seed=1), drawn(3, 8, seed=2)
    layer = dense(Quantization("int8_dynamic", stage="training"), kernel)
    graph, state = nnx.split(layer)

    def total(state, x):
        return (nnx.merge(graph, state)(x, Compute()) * cotangent).sum()

    of_state, of_x = jax.grad(total, argnums=(0, 1))(state, jnp.asarray(x))
    (inputs, of_tokens), (weights, of_outputs) = rounded(x, -1), rounded(kernel, 0)
    step = 1.01 * of_tokens.max() * np.abs(cotangent).sum(0).max()  # where the division rounds the other way
    np.testing.assert_allclose(of_state["kernel"][...], (inputs * of_tokens).T @ cotangent, atol=step)
    np.testing.assert_allclose(of_x, cotangent @ (weights * of_outputs).T, atol=2 * of_outputs.max())
    assert np.abs(of_x - cotangent @ kernel.T).max() > 1e-3  # the kernel is rounded there


def test_calibration_gives_the_largest_input_over_its_bound():
    x, kernel = drawn(3, 5, 32), drawn(32, 8, seed=1)
    x[1, 2, 3] = -51.0
    layer = dense(Quantization("int8_static", stage="calibrating"), kernel)

    def total(scale):
        parameter = layer.kernel
        return parameter.quantizer.matmul(jnp.asarray(x), parameter.values | {"input_scale": scale}, Compute()).sum()

    np.testing.assert_array_equal(jax.grad(total)(jnp.ones(1)), np.float32([51 / 127.5]))


def trained_stage(mode):
    return Bert(CONFIG.replace(quantization=Quantization(mode, stage="training")), "masked_lm")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "int8_static"])
def test_training_computes_what_the_quantized_model_will(mode):
    params = Bert(CONFIG, "masked_lm").init(jax.random.key(0))
    quantization = Quantization(mode)
    quantized = Bert(CONFIG.replace(quantization=quantization), "masked_lm")
    found = jax.jit(quantized.apply)(quantize_params(params, quantization), IDS).logits
    trained = jax.jit(trained_stage(mode).apply)(params, IDS).logits
    plain = jax.jit(Bert(CONFIG, "masked_lm").apply)(params, IDS).logits
    assert np.abs(trained - plain).max() > 1e-4  # something is rounded
    assert np.abs(trained - found).max() < np.abs(trained - plain).max() / 5


@pytest.mark.parametrize("mode", MODES)
def test_the_tree_of_a_quantized_model(mode):
    quantization = Quantization(mode)
    params = Bert(CONFIG, "pretraining").init(jax.random.key(0))
    quantized = quantize_params(params, quantization)
    model = Bert(CONFIG.replace(quantization=quantization), "pretraining")
    assert jax.tree.map(jnp.shape, quantized) == jax.tree.map(jnp.shape, model.abstract_params())
    assert jax.tree.map(lambda leaf: leaf.dtype, quantized) == jax.tree.map(
        lambda leaf: leaf.dtype, model.abstract_params()
    )
    kinds = {name: jax.tree.leaves(quantized[name])[0].dtype for name in ("mlm", "nsp", "pooler")}
    assert set(kinds.values()) == {jnp.dtype("float32")}
    up = quantized["encoder"]["layers"]["mlp"]["up"]
    assert isinstance(up["kernel"], dict) and up["bias"].dtype == jnp.float32
    assert quantized["embeddings"]["word_embeddings"]["embedding"]["quantized"].dtype == jnp.int8
    back = dequantize_params(quantized, quantization)
    assert jax.tree.map(jnp.shape, back) == jax.tree.map(jnp.shape, params)
    for a, b in zip(jax.tree.leaves(back), jax.tree.leaves(params), strict=True):
        assert np.abs(np.asarray(a) - np.asarray(b)).max() <= 0.1 * max(np.abs(np.asarray(b)).max(), 1e-9)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("mode", MODES)
def test_scanned_and_unrolled_layers_agree(mode):
    quantization = Quantization(mode)
    params = quantize_params(Bert(CONFIG, "masked_lm").init(jax.random.key(0)), quantization)
    config = CONFIG.replace(quantization=quantization)
    scanned, unrolled = (
        jax.jit(Bert(config, "masked_lm", Compute(layers=layers)).apply)(params, IDS).logits
        for layers in ("scan", "unroll")
    )
    tolerance = 1e-5 if quantization.inputs == "float" else 1e-3  # inputs between two integers may become either
    np.testing.assert_allclose(scanned, unrolled, rtol=tolerance, atol=tolerance)


def test_patterns_choose_what_stays_float32():
    quantization = Quantization("int8", (*KEEP, "encoder/layers/mlp/down/*"))
    params = quantize_params(Bert(CONFIG, "encoder").init(jax.random.key(0)), quantization)
    assert params["encoder"]["layers"]["mlp"]["down"]["kernel"].dtype == jnp.float32
    assert params["encoder"]["layers"]["mlp"]["up"]["kernel"]["quantized"].dtype == jnp.int8
    everything = quantize_params(Bert(CONFIG, "encoder").init(jax.random.key(0)), Quantization("int8", ()))
    assert everything["pooler"]["dense"]["kernel"]["quantized"].dtype == jnp.int8
    assert everything["embeddings"]["layer_norm"]["scale"].dtype == jnp.float32


def test_a_group_that_does_not_divide_a_layer_is_an_error():
    message = "group_size: expected a divisor of the 32 inputs of encoder/layers/attention/key/kernel, found 48"
    with pytest.raises(InputError, match=message):
        Bert(CONFIG.replace(quantization=Quantization("int4", group_size=48)), "encoder").abstract_params()
    with pytest.raises(InputError, match="group_size: expected a divisor of the 32 inputs"):
        quantize_params(Bert(CONFIG, "encoder").init(jax.random.key(0)), Quantization("int4", group_size=48))
