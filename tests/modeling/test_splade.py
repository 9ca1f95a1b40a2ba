"""SPLADE's pooling against its formula, in parts and whole, with gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.config import BertConfig
from bert_jax.config.values import SPLADE_POOLINGS
from bert_jax.errors import InputError
from bert_jax.modeling import Bert, Compute, sparse

ROWS, LENGTH, WIDTH, SIZE = 8, 9, 6, 31


def draw(*shape):
    return jnp.asarray(np.random.default_rng(sum(shape)).normal(size=shape), jnp.float32)


def inputs():
    mask = jnp.arange(LENGTH) < jnp.asarray([9, 3, 1, 5, 9, 2, 7, 0])[:, None]
    return draw(ROWS, LENGTH, WIDTH), mask.astype(jnp.int32), draw(SIZE, WIDTH), draw(SIZE)


def formula(x, mask, table, bias, pooling):
    weights = jnp.log1p(jax.nn.relu(x @ table.T + bias))
    weights = jnp.where(mask[..., None] > 0, jnp.log1p(weights) if pooling.endswith("log1p") else weights, 0)
    return weights.sum(1) if "sum" in pooling else weights.max(1)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.parametrize("pooling", SPLADE_POOLINGS)
def test_values_and_gradients(monkeypatch, pooling, parts):
    monkeypatch.setattr(sparse, "number_of_parts", lambda *_: parts)
    x, mask, table, bias = inputs()
    compute = Compute(dtype="float32", platform="tpu" if parts > 1 else "cpu")
    weights = draw(ROWS, SIZE)

    def ours(x, table, bias):
        return (sparse.splade(x, mask, table, bias, pooling, compute) * weights).sum()

    def expected(x, table, bias):
        return (formula(x, mask, table, bias, pooling) * weights).sum()

    found = jax.jit(lambda *given: sparse.splade(*given, pooling, compute))(x, mask, table, bias)
    np.testing.assert_allclose(found, formula(x, mask, table, bias, pooling), rtol=1e-5, atol=1e-6)
    assert (found[-1] == 0).all() and (found >= 0).all()
    for a, b in zip(*(jax.grad(f, (0, 1, 2))(x, table, bias) for f in (ours, expected)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_padding_changes_nothing():
    config = BertConfig.named("tiny", vocab_size=97, num_hidden_layers=1, pooling="splade_sum")
    bert = Bert(config, "sparse_embedding")
    params = bert.init(jax.random.key(0))
    ids = np.random.default_rng(0).integers(1, 97, (2, 7))
    padded, mask = np.pad(ids, ((0, 0), (0, 4))), np.pad(np.ones_like(ids), ((0, 0), (0, 4)))
    plain = bert.apply(params, ids).sentence_embedding
    np.testing.assert_allclose(bert.apply(params, padded, mask).sentence_embedding, plain, atol=1e-5)
    with pytest.raises(InputError, match="expected rows of one example each, found rows of several"):
        bert.apply(params, ids, segment_ids=np.ones_like(ids))


def test_a_pooling_of_logits_is_not_joined_with_others():
    with pytest.raises(InputError, match="pooling 'splade_max' is not known"):
        BertConfig(pooling="splade_max+mean")
