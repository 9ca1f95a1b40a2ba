"""The ways to attend: that each gives the numbers of plain XLA, and when each is taken.

Kernels for TPUs run here in Pallas' interpreter.
"""

import dataclasses
from unittest.mock import Mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.config import BertConfig
from bert_jax.errors import InputError
from bert_jax.modeling import Bert, Compute
from bert_jax.modeling.attention_mask import AttentionMask
from bert_jax.modeling.attention_plan import plan_attention
from bert_jax.modeling.backends import attend, split_heads
from bert_jax.modeling.dropout import bits_of_scores
from bert_jax.modeling.kernels import local

RATE = 0.3


def config_of(heads=2, head_size=64, rate=0.0, keys=None):
    return BertConfig.named(
        "tiny", hidden_size=heads * head_size, num_attention_heads=heads, attention_probs_dropout_prob=rate,
        num_key_value_heads=keys)  # fmt: skip


def visibility(kind, batch, length, window=None):
    """Padding of various lengths, or four examples in a row."""
    lengths = length - np.arange(batch)[:, None] * (length // 3)
    mask = (np.arange(length) < lengths).astype(np.int32)
    segments = np.broadcast_to(np.arange(length) * 4 // length + 1, (batch, length)).astype(np.int32)
    made = {
        "everything": AttentionMask(),
        "mask": AttentionMask.of(jnp.asarray(mask), None),
        "segments": AttentionMask.of(None, jnp.asarray(segments)),
    }[kind]
    tokens = mask if kind == "mask" else np.ones_like(mask)
    return dataclasses.replace(made, window=window), tokens


def results(backend, dtype, length, kind, *, heads=2, head_size=64, rate=0.0, window=None, batch=2, keys=None,
            repeats=False):  # fmt: skip
    """What attention gives, and its gradients by query, key and value; of tokens alone.

    With `keys` heads of keys, these are shared by the backend, or with `repeats` repeated before it.
    """
    config = config_of(heads, head_size, rate, None if repeats else keys)
    compute = Compute(dtype, attention=backend, platform="tpu")
    visible, tokens = visibility(kind, batch, length, window)
    random, narrow = np.random.default_rng(0), keys or heads
    q, k, v, up = (
        jnp.asarray(random.standard_normal((batch, length, many * head_size)), dtype)
        for many in (heads, narrow, narrow, heads)
    )
    key = jax.random.key(7) if rate else None

    def repeated(x):
        by_head = x.reshape(batch, length, narrow, head_size)
        return jnp.repeat(by_head, heads // narrow, axis=2).reshape(batch, length, -1) if repeats else x

    @jax.jit
    def run(q, k, v, up):
        plan = plan_attention(visible, config, compute, length, drops=key is not None, maps=False)

        def attended(q, k, v):
            return attend(plan, split_heads((q, repeated(k), repeated(v)), config), config, key, compute)[0]

        out, pull = jax.vjp(attended, q, k, v)
        return out, *pull(up * tokens[..., None].astype(up.dtype))

    return [np.asarray(array, np.float32) * tokens[..., None] for array in run(q, k, v, up)]


CASES = [
    ("fused", 128, "mask", {}),
    ("fused", 256, "segments", {"rate": RATE}),
    ("fused", 256, "everything", {"heads": 4, "head_size": 32, "rate": RATE}),
    ("fused", 128, "mask", {"heads": 1, "head_size": 128}),
    ("fused", 1024, "mask", {"rate": RATE, "batch": 1}),  # several blocks of queries
    ("fused", 1024, "segments", {"window": 64, "rate": RATE, "batch": 1}),
    ("splash", 128, "mask", {}),
    ("splash", 384, "segments", {}),
    ("splash", 1024, "mask", {"window": 64}),
    ("splash", 1024, "segments", {"window": 200, "batch": 1}),
]


@pytest.mark.sampled(9)
@pytest.mark.parametrize(("backend", "length", "kind", "options"), CASES, ids=lambda value: str(value))
def test_kernels_give_the_numbers_of_xla(backend, length, kind, options, interpreted):
    found, expected = (results(name, "float32", length, kind, **options) for name in (backend, "xla"))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("backend", "length", "kind", "options"),
    [
        ("xla", 24, "mask", {"keys": 2, "rate": RATE, "head_size": 16}),
        ("xla", 24, "segments", {"keys": 1, "head_size": 16}),
        ("xla", 96, "mask", {"keys": 2, "window": 12, "rate": RATE, "head_size": 16}),  # block by block
        ("fused", 128, "mask", {"keys": 2, "rate": RATE}),
        ("splash", 128, "segments", {"keys": 2}),
    ],
    ids=lambda value: str(value),
)
def test_shared_keys_give_the_numbers_of_repeated_ones(backend, length, kind, options, interpreted):
    found = results(backend, "float32", length, kind, heads=4, **options)
    expected = results("xla", "float32", length, kind, heads=4, repeats=True, **options)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_shared_keys_are_not_repeated():
    config, compute = config_of(4, 16, keys=2), Compute()
    shapes = [jax.ShapeDtypeStruct((2, 24, heads * 16), jnp.float32) for heads in (4, 2, 2)]
    plan = plan_attention(AttentionMask(), config, compute, 24, drops=False, maps=False)
    traced = jax.make_jaxpr(lambda *qkv: attend(plan, split_heads(qkv, config), config, None, compute)[0])(*shapes)
    copies = [e for e in traced.eqns if e.primitive.name in ("broadcast_in_dim", "gather", "concatenate")]
    assert all(np.prod(e.outvars[0].aval.shape) < 2 * 24 * 4 * 16 for e in copies)
    products = [[v.aval.shape for v in e.invars] for e in traced.eqns if e.primitive.name == "dot_general"]
    assert [(2, 2, 24, 16) in shapes for shapes in products] == [True, True]  # keys and values of two heads


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("length", "window", "kind", "rate"),
    [(96, 12, "mask", 0.0), (101, 12, "segments", RATE), (130, 16, "everything", RATE), (64, 8, "mask", RATE)],
)
def test_a_window_taken_block_by_block_gives_the_numbers_of_all_scores(length, window, kind, rate, monkeypatch):
    by_blocks = Mock(wraps=local.local_attention)
    monkeypatch.setattr(local, "local_attention", by_blocks)
    options = {"rate": rate, "window": window, "head_size": 16}
    found = results("xla", "float32", length, kind, **options)
    assert by_blocks.call_count == 1
    monkeypatch.setattr(local, "supports", lambda length, window: False)
    expected = results("xla", "float32", length, kind, **options)
    assert by_blocks.call_count == 1, "not the second time"
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_work_within_a_window_is_linear_in_the_length():
    def flops(length, layers):  # the first sees everything
        config = config_of().replace(max_position_embeddings=length, local_window=16, global_every=99)
        model = Bert(config.replace(num_hidden_layers=layers), compute=Compute(layers="unroll"))
        shapes = model.abstract_params(), jax.ShapeDtypeStruct((1, length), jnp.int32)
        return jax.jit(model.apply).lower(*shapes).compile().cost_analysis()["flops"]

    short, long = (flops(length, 3) - flops(length, 1) for length in (1024, 2048))
    assert 1.9 * short < long < 2.1 * short


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("backend", "rate"), [("fused", 0.0), ("fused", RATE), ("splash", 0.0)])
def test_kernels_in_bfloat16_are_as_near_to_exact_as_xla(backend, rate, interpreted):
    exact = results("xla", "float32", 256, "segments", rate=rate)
    found, plain = (results(name, "bfloat16", 256, "segments", rate=rate) for name in (backend, "xla"))
    for a, b, c in zip(found, plain, exact, strict=True):
        scale = np.abs(c).max()
        assert np.abs(a - b).mean() < 1e-3 * scale
        assert np.abs(a - c).mean() < 1.2 * np.abs(b - c).mean() + 1e-6


def test_dropped_scores_are_as_many_as_asked_for_and_differ_everywhere():
    words = jax.random.bits(jax.random.key(0), (4, 1, 1, 2), jnp.uint32)
    row, column = np.arange(512, dtype=np.uint32)[:, None], np.arange(512, dtype=np.uint32)[None]
    bits = np.asarray(bits_of_scores((words[..., 0], words[..., 1]), row, column))
    kept = bits >= np.uint32(RATE * 2**32)
    assert abs(kept.mean() - (1 - RATE)) < 4 * np.sqrt(RATE * (1 - RATE) / kept.size)
    flat = kept.reshape(-1, 512) - kept.mean()
    for other in (np.roll(flat, 1, axis=0), np.roll(flat, 1, axis=1)):  # neighbours know nothing of one another
        assert abs((flat * other).mean()) < 4 * RATE * (1 - RATE) / np.sqrt(kept.size)
    assert len(np.unique(bits)) > 0.999 * bits.size


def model_loss(compute, key):
    config = config_of(rate=RATE).replace(vocab_size=64, max_position_embeddings=128)
    model = Bert(config, "encoder", compute)
    ids = np.random.default_rng(0).integers(0, 64, (2, 128))
    mask = (np.arange(128) < [[128], [70]]).astype(np.int32)

    def loss(params):
        state = model.apply(params, ids, mask, dropout_key=key).last_hidden_state
        return (jnp.square(state) * mask[..., None] * np.linspace(0, 1, 128)).sum()

    return jax.jit(jax.value_and_grad(loss))(model.init(jax.random.key(0)))


@pytest.mark.parametrize("remat", ["none", "dots"])
def test_a_model_learns_the_same_by_a_kernel(remat, interpreted):
    found, expected = (
        model_loss(Compute(attention=backend, platform="tpu", remat=remat), jax.random.key(1))
        for backend in ("fused", "xla")
    )
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["fused", "splash", "shared keys", "shared keys by splash"])
def test_devices_run_kernels_on_their_parts(backend, on_a_mesh):
    assert on_a_mesh[backend] < 1e-5


def way_of(length, platform, *, drops=False, maps=False, rate=0.1, dtype="bfloat16", **config):
    compute = Compute(dtype, platform=platform)
    plan = plan_attention(AttentionMask(), config_of(rate=rate, **config), compute, length, drops=drops, maps=maps)
    return plan.backend


@pytest.mark.parametrize(
    ("expected", "arguments"),
    [
        ("xla", {"length": 512, "platform": "cpu"}),
        ("fused", {"length": 512, "platform": "tpu", "drops": True}),
        ("xla", {"length": 500, "platform": "tpu", "drops": True}),
        ("xla", {"length": 512, "platform": "tpu", "maps": True}),
        ("xla", {"length": 512, "platform": "tpu", "drops": True, "heads": 1}),  # half of the columns of a register
        ("splash", {"length": 512, "platform": "tpu", "heads": 1}),
        ("splash", {"length": 8192, "platform": "tpu"}),
        ("xla", {"length": 8192, "platform": "tpu", "drops": True}),
        ("cudnn", {"length": 512, "platform": "gpu"}),
        ("xla", {"length": 512, "platform": "gpu", "drops": True}),
        ("xla", {"length": 512, "platform": "gpu", "dtype": "float32"}),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else value,
)
def test_what_is_cheapest_and_can_do_it_is_taken(expected, arguments):
    assert way_of(**arguments) == expected


@pytest.mark.parametrize(
    ("backend", "platform", "length", "drops", "said"),
    [
        (
            "splash",
            "tpu",
            512,
            True,
            "attention_probs_dropout_prob of 0, as this backend has no dropout, found 0.3",
        ),
        ("splash", "tpu", 500, False, "expected a length that is a multiple of 128, found 500"),
        ("fused", "cpu", 512, False, "needs a tpu, found cpu"),
        ("fused", "tpu", 4096, False, "up to 2,048 .* found length 4096"),
        ("cudnn", "gpu", 512, True, "attention_probs_dropout_prob"),
    ],
)
def test_what_a_way_cannot_do_is_said(backend, platform, length, drops, said):
    compute = Compute("bfloat16", attention=backend, platform=platform)
    with pytest.raises(InputError, match=said):
        plan_attention(AttentionMask(), config_of(rate=RATE), compute, length, drops=drops, maps=False)
