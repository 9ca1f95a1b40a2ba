"""The kernel for disentangled attention, in Pallas' interpreter, beside plain XLA."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.config import BertConfig
from bert_jax.families.deberta import fused, modules
from bert_jax.families.deberta.modules import attend_disentangled
from bert_jax.modeling import Compute
from bert_jax.modeling.attention_mask import AttentionMask
from bert_jax.modeling.attention_plan import plan_attention

RATE = 0.3


def config_of(heads=2, head_size=64, terms=("c2p", "p2c"), rate=0.0):
    return BertConfig.named(
        "tiny", "deberta-v2", hidden_size=heads * head_size, num_attention_heads=heads, pos_att_type=terms,
        attention_probs_dropout_prob=rate, max_position_embeddings=2048, position_buckets=64,
    )  # fmt: skip


def results(backend, dtype="float32", length=128, kind="mask", **fields):
    """The context at tokens, and the gradients by query, key, value and both tables."""
    config, compute = config_of(**fields), Compute(dtype, attention=backend, platform="tpu")
    heads, size, random = config.num_attention_heads, config.head_size, np.random.default_rng(0)
    *qkv, up = (jnp.asarray(random.standard_normal((2, length, heads * size)), dtype) for _ in range(4))
    rows = config.attention.num_relative_embeddings(config.max_position_embeddings)
    kinds = zip(("c2p", "p2c"), random.standard_normal((2, rows, heads, size)), strict=True)
    tables = tuple(
        jnp.asarray(table, dtype) if name in config.attention.pos_att_type else None for name, table in kinds
    )
    tokens = (np.arange(length) < [[length], [length - 50]]).astype(np.int32)
    segments = np.broadcast_to(np.arange(length) * 3 // length + 1, (2, length)).astype(np.int32)
    mask = AttentionMask.of(jnp.asarray(tokens), None) if kind == "mask" else AttentionMask.of(None, segments)
    key = jax.random.key(7) if config.attention_probs_dropout_prob else None

    @jax.jit
    def run(qkv, tables, up):
        plan = plan_attention(mask, config, compute, length, drops=key is not None, maps=False)
        assert plan.backend == backend
        out, pull = jax.vjp(
            lambda *a: attend_disentangled(plan, a[0], config, key, compute, a[1])[0], tuple(qkv), tables
        )
        return out * tokens[..., None], pull(up * tokens[..., None].astype(up.dtype))

    return [np.asarray(x, np.float32) for x in jax.tree.leaves(run(qkv, tables, up))]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strided", "options"),
    [
        (False, {"length": 256, "kind": "segments", "rate": RATE}),
        (False, {"heads": 4, "head_size": 32, "rate": RATE}),
        (False, {"heads": 1, "head_size": 128, "terms": ("c2p",)}),
        (False, {"terms": ("p2c",)}),
        pytest.param(True, {}, marks=pytest.mark.slow),
        pytest.param(True, {"length": 384, "rate": RATE}, marks=pytest.mark.slow),
    ],
    ids=lambda value: str(value),
)
def test_it_gives_the_numbers_of_xla(strided, options, interpreted, monkeypatch):
    monkeypatch.setattr(fused, "rotates_by_row", lambda kind: strided)
    for found, expected in zip(results("fused", **options), results("xla", **options), strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6 * np.abs(expected).max())


@pytest.mark.parametrize("first", [0, 129])
def test_chips_rotate_rows_as_the_steps_do(first):
    x = jnp.arange(128 * 256, dtype=jnp.float32).reshape(128, 256)
    at_once, by_steps = (
        jax.jit(functools.partial(fused._rotated, form, first=first))(x)
        for form in (fused.Form(64, "float32", strided=strided) for strided in (True, False))
    )
    np.testing.assert_array_equal(at_once, by_steps)
    np.testing.assert_array_equal(by_steps[5], np.roll(x[5], first + 5))


@pytest.mark.slow
def test_in_bfloat16_it_is_as_near_to_exact_as_xla(interpreted):
    exact, found, plain = (
        results(backend, dtype, rate=RATE)
        for backend, dtype in (("xla", "float32"), ("fused", "bfloat16"), ("xla", "bfloat16"))
    )
    for a, b, c in zip(found, plain, exact, strict=True):
        assert np.abs(a - c).mean() < 1.2 * np.abs(b - c).mean() + 1e-6


@pytest.mark.slow
def test_devices_run_it_on_their_parts(on_a_mesh):
    assert on_a_mesh["fused disentangled"] < 1e-4


@pytest.mark.parametrize(
    ("backend", "length", "chip", "dtype"),
    [
        ("xla", 128, "TPU v5 lite", "bfloat16"),
        ("fused", 256, "TPU v4", "bfloat16"),
        ("fused", 512, "TPU v4", "float32"),
        ("blocks", 1024, "TPU v4", "bfloat16"),
        ("fused", 1024, "TPU v5 lite", "float32"),
        ("fused", 2048, "TPU v6 lite", "bfloat16"),
        ("xla", 500, "TPU v5", "bfloat16"),
    ],
)
def test_auto_takes_it_where_it_fits(backend, length, chip, dtype, monkeypatch):
    monkeypatch.setattr(modules, "device_kind", lambda: chip)
    compute = Compute(dtype, platform="tpu")
    found = plan_attention(AttentionMask(), config_of(rate=0.1), compute, length, drops=True, maps=False)
    assert found.backend == backend
