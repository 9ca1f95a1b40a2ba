"""The parts of a block against what they are defined as."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.config import BertConfig
from bert_jax.config.values import ACTIVATION_NAMES
from bert_jax.families.esm.modules import masked_share
from bert_jax.modeling.attention_mask import AttentionMask
from bert_jax.modeling.layers import ACTIVATIONS, gelu

POINTS = np.concatenate((np.linspace(-12, 12, 4801), [-100.0, -0.0, 1e-30, 100.0]))


def true_gelu(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The value and the slope, in float64."""
    normal = np.array([math.erfc(-v / math.sqrt(2)) / 2 for v in x])
    return x * normal, normal + x * np.exp(-0.5 * x**2) / math.sqrt(2 * math.pi)


# The value's error is that of the distribution function times x; of bfloat16, half a last place of the result besides.
@pytest.mark.parametrize(("dtype", "relative"), [("float32", 0), ("bfloat16", 2**-8)])
def test_gelu_and_its_slope_are_those_of_the_definition(dtype, relative):
    x = jnp.asarray(POINTS, dtype)
    rounded = np.asarray(x, np.float64)
    value, slope = jax.jvp(gelu, (x,), (jnp.ones_like(x),))
    assert value.dtype == slope.dtype == x.dtype
    for found, true in zip((value, slope), true_gelu(rounded), strict=True):
        allowed = 2e-7 * np.maximum(1, abs(rounded)) + relative * abs(true)
        assert np.max(abs(np.asarray(found, np.float64) - true) / allowed) < 1
    np.testing.assert_array_equal(np.asarray(jax.vmap(jax.grad(gelu))(x)), np.asarray(slope))
    np.testing.assert_array_equal(np.asarray(gelu(x)), np.asarray(value))


def test_activations_are_those_of_transformers():
    torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is installed on Python 3.11 only")
    theirs = pytest.importorskip("transformers.activations").ACT2FN
    assert ACTIVATIONS.keys() == set(ACTIVATION_NAMES)
    aliases = (
        "gelu_new",
        "gelu_pytorch_tanh",
        "gelu_python_tanh",
        "gelu_fast",
        "gelu_accurate",
        "gelu_python",
        "swish",
    )
    x = np.linspace(-12, 12, 481, dtype=np.float32)
    for name in {*aliases, *ACTIVATION_NAMES} - {"gelu_tanh"}:  # which is our name alone
        config = BertConfig.from_hf({"model_type": "bert", "hidden_act": name})
        expected = theirs[name](torch.tensor(x)).numpy()
        np.testing.assert_allclose(ACTIVATIONS[config.hidden_act](jnp.asarray(x)), expected, atol=2e-6, err_msg=name)


def test_the_share_of_masked_tokens_is_of_the_example():
    masked = jnp.asarray([[0, 1, 0, 1, 0, 0], [0, 0, 0, 0, 0, 0]], bool)
    share = lambda mask: np.asarray(masked_share(masked, mask))  # noqa: E731
    np.testing.assert_allclose(share(AttentionMask()), [[2 / 6], [0]])
    padded = AttentionMask.of(jnp.asarray([[1, 1, 1, 1, 0, 0], [0] * 6]), None)
    np.testing.assert_allclose(share(padded), [[2 / 4], [0]])
    packed = AttentionMask.of(None, jnp.asarray([[1, 1, 1, 2, 2, 0], [3, 3, 4, 4, 5, 5]]))
    np.testing.assert_allclose(share(packed)[0], [1 / 3] * 3 + [1 / 2] * 2 + [0], rtol=1e-6)
    assert not share(packed)[1].any()
