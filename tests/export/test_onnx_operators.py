"""Primitives of JAX as ONNX operators: functions in onnxruntime against JAX, for a first axis of any size."""

import collections

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.config.values import ACTIVATION_NAMES, LAYER_ACTIVATIONS
from bert_jax.errors import InputError
from bert_jax.modeling.embedding_heads import _LAYER_ACTIVATIONS
from bert_jax.modeling.layers import ACTIVATIONS

pytest.importorskip("onnx", reason="needs onnx: pip install 'bert-jax[onnx]'")
onnxruntime = pytest.importorskip("onnxruntime", reason="needs onnxruntime: pip install 'bert-jax[onnx]'")

from bert_jax.export.onnx.graph import OnnxGraph  # noqa: E402
from bert_jax.export.onnx.operators import OPERATORS  # noqa: E402
from bert_jax.export.onnx.program import add_function  # noqa: E402
from bert_jax.export.onnx.values import Value  # noqa: E402

IDS = np.array([[4, 0, 5, 1], [2, 2, 0, 3], [5, 1, 1, 0]])
SCALE, BIAS = np.linspace(0.5, 1.5, 4, dtype=np.float32), np.linspace(-1, 1, 4, dtype=np.float32)
TABLE = np.arange(24, dtype=np.float32).reshape(6, 4)


def model_of(function, inputs):
    """The model of a function of int32 inputs, whose first axis is of any size, and that returns one array."""
    graph, (rows,) = OnnxGraph(), jax.export.symbolic_shape("rows", constraints=["rows >= 2"])
    axes = {f"input_{i}": ("rows", *array.shape[1:]) for i, array in enumerate(inputs)}
    shapes = [jax.ShapeDtypeStruct((rows, *array.shape[1:]), np.int32) for array in inputs]
    for name, of_input in axes.items():
        graph.add_symbols(name, of_input[:1])
    values = [Value(of_input, name, dtype=np.dtype(np.int64)) for name, of_input in axes.items()]
    results = add_function(graph, OPERATORS, lambda *arrays: {"output": function(*arrays)}, shapes, values)
    graph.output(graph.cast(results["output"], np.float32), "output")
    rank = jax.eval_shape(function, *(array.astype(np.int32) for array in inputs)).ndim
    return graph.model(axes, {"output": tuple(f"size_{axis}" for axis in range(rank))}, "")


def assert_same(function, *inputs):
    """The same values in onnxruntime and in JAX; returns the model."""
    model = model_of(function, inputs)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for count in (len(inputs[0]), 2):
        arrays = [array[:count] for array in inputs]
        (found,) = session.run(None, {f"input_{i}": array for i, array in enumerate(arrays)})
        expected = np.float32(jax.jit(function)(*(array.astype(np.int32) for array in arrays)))
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=2e-6)
    return model


def kinds(model):
    return collections.Counter(node.op_type for node in model.graph.node)


@pytest.mark.parametrize("name", sorted({*ACTIVATION_NAMES, *LAYER_ACTIVATIONS}))
def test_every_activation(name):
    activation = {**ACTIVATIONS, **_LAYER_ACTIVATIONS}[name]
    assert_same(lambda x: activation(x.astype(jnp.float32) / 100), np.arange(-1500, 1500))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: jnp.einsum("bn,bm->bnm", x, x),
        lambda x: jnp.einsum("bn,bn->b", x, x),
        lambda x: jnp.einsum("bn,cn->bc", x, x),
        lambda x: jnp.einsum("bnc,nc->b", x[:, :, None] * SCALE, TABLE[:4]),
        lambda x: jnp.einsum("bi,jkm->bijkm", x, TABLE.reshape(2, 3, 4)),
        lambda x: jnp.einsum("bij,bkj->bik", x[:, :, None] + BIAS, x[:, None] * SCALE),
        lambda x: jnp.einsum("bijk,bk->bij", jnp.broadcast_to(x[:, None, None], (x.shape[0], 2, 3, 4)), x),
    ],
)
def test_products(function):
    """With axes of a batch, of one operand, and that are summed: none, one and several."""
    assert_same(lambda x: function(x.astype(jnp.float32)), IDS)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[:, 1],
        lambda x: x[:, ::2],
        lambda x: x[:, ::-1],
        lambda x: jnp.asarray(TABLE)[x],
        lambda x: jnp.asarray(TABLE)[1:4][:, x % 4],
        lambda x: jnp.take(TABLE, 2 * x - 3, axis=0, mode="clip"),
        lambda x: jnp.asarray(TABLE)[-1 - x],
        lambda x: jnp.take_along_axis(x, x % 4, axis=1),
        lambda x: jnp.take_along_axis(x[:, :, None] * jnp.arange(3), x[:, :1, None] % 4, axis=1),
        lambda x: jax.lax.dynamic_slice(x, (0, x[0, 0]), (2, 3)),
        lambda x: jax.lax.dynamic_slice_in_dim(x, x.shape[0] - 2, 2),
    ],
)
def test_parts_and_rows(function):
    """Static and dynamic slices, rows of a table, and rows in each row of a batch."""
    assert_same(function, IDS)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: jnp.argsort(x, axis=1),
        lambda x: jnp.argsort(x, axis=1, descending=True, stable=True),
        lambda x: jnp.sort(x, axis=0),
        lambda x: jax.lax.top_k(x.astype(jnp.float32), 2)[1],
        lambda x: jnp.cumsum(x, axis=1) + jax.lax.cumsum(x, axis=0, reverse=True),
        lambda x: x.argmax(1) + (x > 1).argmin(1),
        lambda x: x.any(1) & (x.min(1) > 0) | (x > 0).all(1) & ~(x.max(1) == 5),
        lambda x: jnp.clip(x, 1, 3) + jnp.sign(x - 2) * abs(2 - x),
        lambda x: jnp.where(x != 2, x / 3, jnp.floor(x * 0.7) + jnp.ceil(x * 0.7)),
        lambda x: jnp.log1p(jnp.sqrt(x)) + jnp.exp(-x) ** 1.5 + jnp.log(x + 1.0) * jnp.cos(x) * jnp.sin(x),
        lambda x: jnp.pad(x, ((1, 0), (0, 2)), constant_values=7),
        lambda x: jnp.concatenate([x, x[:, :1]], axis=1).reshape(-1),
        lambda x: jnp.stack([x, x + 1], axis=1).swapaxes(0, 1).reshape(2, -1),
        lambda x: jnp.concatenate(jnp.split(x, 2, axis=1)[::-1], axis=0),
        lambda x: x.reshape(2 * x.shape[0], 2) * jnp.arange(2 * x.shape[0])[:, None],
        lambda x: jnp.broadcast_to(x[:, :1], x.shape),
        lambda x: x[: x.shape[0] // 2 + 1] * (x.shape[0] - 1) ** 2,
    ],
)
def test_other_primitives(function):
    assert_same(function, IDS)


def test_a_scan_is_written_out():
    def step(total, row):
        return total + row.sum(0), total * 2

    def function(x):
        total, before = jax.lax.scan(
            step, jnp.zeros(4, jnp.int32), (x[:, None] * jnp.arange(3)[:, None]).swapaxes(0, 1)
        )
        return total + before.sum(0) + jax.lax.scan(step, total, (x * 0 + 1)[None], reverse=True)[0]

    assert_same(function, IDS)


def normalized(x):
    x -= x.mean(axis=-1, keepdims=True)
    return x * jax.lax.rsqrt(jnp.square(x).mean(axis=-1, keepdims=True) + 1e-6)


@pytest.mark.parametrize(
    "function, kind, count",
    [
        (lambda x: normalized(x) * SCALE + BIAS, "LayerNormalization", 1),
        (lambda x: normalized(x) * SCALE, "LayerNormalization", 1),
        (jax.nn.softmax, "Softmax", 1),
        (lambda x: jax.nn.softmax(x, axis=0), "Softmax", 0),
        (lambda x: x.mean(-1, keepdims=True), "ReduceMean", 1),
        (lambda x: normalized(x) * x + BIAS, "LayerNormalization", 0),
        (lambda x: jnp.exp(x) / jnp.exp(x).sum(0), "Softmax", 0),
    ],
)
def test_what_is_one_node(function, kind, count):
    """What onnxruntime computes in one pass is recognized, and what only resembles it is not."""
    model = assert_same(lambda x: function(x.astype(jnp.float32)), IDS)
    assert kinds(model)[kind] == count


def test_one_hot_rows_are_gathered():
    model = assert_same(lambda ids: jax.nn.one_hot(ids, 6) @ TABLE, IDS)
    assert not kinds(model)["MatMul"]
    model = assert_same(lambda ids: jax.nn.one_hot(ids, 7)[..., 1:] @ TABLE, IDS)
    assert kinds(model)["MatMul"] == 1


def test_nodes_and_arrays_that_nothing_reads_are_left_out():
    model = assert_same(lambda x: [x + 1, x @ TABLE[:4].astype(np.int32)][0], IDS)
    assert kinds(model) == {"Add": 1, "Cast": 1, "Identity": 1} and len(model.graph.initializer) == 1


def test_a_primitive_without_operators_is_named():
    with pytest.raises(
        InputError, match=r"expected primitives of JAX that export/onnx/operators\.py translates .*found fft"
    ):
        model_of(lambda x: jnp.fft.fft(x).real, [IDS])
