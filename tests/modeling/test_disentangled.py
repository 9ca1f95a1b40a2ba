"""Disentangled attention in blocks of queries, beside all scores at once: the same results, and linear memory."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.config import BertConfig
from bert_jax.families.deberta import blocks
from bert_jax.modeling import Bert, Compute

LENGTH = 256  # two blocks
CONFIG = BertConfig.named(
    "tiny", "deberta-v2", vocab_size=50, hidden_size=16, num_attention_heads=2, intermediate_size=16,
    max_position_embeddings=LENGTH, position_buckets=32, initializer_range=0.3,
)  # fmt: skip
V1 = BertConfig.named(
    "tiny", "deberta", vocab_size=50, hidden_size=16, num_attention_heads=2, intermediate_size=16,
    max_position_embeddings=LENGTH, max_relative_positions=100, initializer_range=0.3,
)  # fmt: skip


def rows(kind):
    """Two full rows, padded ones, or ones with three examples each."""
    ids = np.random.default_rng(0).integers(5, 50, (2, LENGTH))
    mask = np.arange(LENGTH) < np.array([[LENGTH], [150]])
    segments = np.searchsorted([[40, 170, 230], [90, 91, 200]][0], np.arange(LENGTH), side="right") + 1
    return {
        "full": {"input_ids": ids},
        "padded": {"input_ids": ids, "attention_mask": mask.astype(np.int32)},
        "packed": {"input_ids": ids, "segment_ids": np.stack([segments, segments[::-1]]).astype(np.int32)},
    }[kind]


def run(config, inputs, dropout_key=None, layers="unroll"):
    """The last hidden state at tokens, and the gradient of a loss of it."""
    bert = Bert(config, compute=Compute(layers=layers))
    params = jax.jit(bert.init)(jax.random.key(0))
    up = (
        np.random.default_rng(1).standard_normal((2, LENGTH, 16))
        * (inputs.get("attention_mask", 1) * np.ones((2, 1)))[..., None]
    )

    def loss(params):
        x = bert.apply(params, **inputs, dropout_key=dropout_key).last_hidden_state
        return (x * up).sum(), x * (up != 0)

    return jax.jit(jax.grad(loss, has_aux=True))(params)


def assert_close(found, expected, within):
    largest = max(np.abs(leaf).max() for leaf in jax.tree.leaves(expected))
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        # A key's bias has no gradient in exact arithmetic: what both give there is rounding.
        np.testing.assert_allclose(a, b, rtol=0, atol=max(within * np.abs(b).max(), 1e-6 * largest))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "kind", "drops"),
    [
        (CONFIG, "padded", False),
        (CONFIG, "packed", True),
        (CONFIG.replace(pos_att_type=("c2p",), share_att_key=False), "full", False),
        (CONFIG.replace(pos_att_type=("p2c",)), "padded", False),
        (V1, "padded", False),
    ],
)
def test_blocks_have_the_results_of_all_scores_at_once(monkeypatch, config, kind, drops):
    key = jax.random.key(3) if drops else None
    expected_gradient, expected = run(config, rows(kind), key)
    monkeypatch.setattr(blocks, "_SHORTEST", LENGTH)
    called = []
    monkeypatch.setattr(
        blocks, "attention_in_blocks", lambda *a, f=blocks.attention_in_blocks: called.append(1) or f(*a)
    )
    gradient, found = run(config, rows(kind), key, layers="scan" if kind == "packed" else "unroll")
    assert called
    assert_close(found, expected, 1e-5)
    assert_close(gradient, expected_gradient, 1e-4)


@pytest.mark.slow
def test_devices_compute_blocks_of_their_parts(on_a_mesh):
    assert on_a_mesh["blocks"] < 1e-4


def test_attention_maps_and_other_lengths_need_all_scores(monkeypatch):
    assert blocks.supports(1024) and not blocks.supports(1000) and not blocks.supports(512)
    monkeypatch.setattr(blocks, "_SHORTEST", LENGTH)
    bert = Bert(CONFIG)
    params = jax.jit(bert.init)(jax.random.key(0))
    maps = jax.jit(lambda p: bert.apply(p, **rows("full"), output_attentions=True))(params).attentions
    assert maps[0].shape == (2, 2, LENGTH, LENGTH)


def temporaries(length, shortest, monkeypatch):
    """Bytes of the temporaries of a training step's forward and backward pass, as compiled."""
    monkeypatch.setattr(blocks, "_SHORTEST", shortest)
    config = CONFIG.replace(max_position_embeddings=length, num_hidden_layers=1)
    bert = Bert(config)

    def loss(params, ids):
        return bert.apply(params, ids, dropout_key=jax.random.key(0)).last_hidden_state.astype(jnp.float32).sum()

    ids = jax.ShapeDtypeStruct((1, length), jnp.int32)
    compiled = jax.jit(jax.grad(loss)).lower(bert.abstract_params(), ids).compile()
    return compiled.memory_analysis().temp_size_in_bytes


@pytest.mark.slow
def test_memory_is_linear_in_the_length(monkeypatch):
    short, long = (temporaries(length, 1024, monkeypatch) for length in (1024, 2048))
    at_once = temporaries(2048, 1 << 30, monkeypatch)
    assert long < 2.2 * short
    assert long < at_once / 4
