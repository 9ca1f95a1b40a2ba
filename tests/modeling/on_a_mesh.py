"""Run by conftest.py in a process with 8 devices: how far a mesh's results are from one device's, as JSON."""

import json

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas

from bert_jax import sharding
from bert_jax.config import BertConfig
from bert_jax.families.deberta import blocks
from bert_jax.families.deberta.modules import attend_disentangled
from bert_jax.modeling import Compute
from bert_jax.modeling.attention_mask import AttentionMask
from bert_jax.modeling.attention_plan import plan_attention
from bert_jax.modeling.backends import attend, split_heads
from bert_jax.modeling.losses import vocabulary_cross_entropy


def gradients(backend, mesh, rate, keys=4):
    config = BertConfig.named("tiny", hidden_size=256, num_attention_heads=4, attention_probs_dropout_prob=rate,
                              num_key_value_heads=keys)  # fmt: skip
    compute = Compute(attention=backend, platform="tpu")
    random = np.random.default_rng(0)
    q, k, v, up = (
        jnp.asarray(random.standard_normal((8, 128, 64 * heads)), jnp.float32) for heads in (4, keys, keys, 4)
    )
    segments = jnp.asarray(np.repeat(random.integers(1, 4, (8, 8)), 16, axis=1), jnp.int32)

    def run(q, k, v, up):
        plan = plan_attention(AttentionMask.of(None, segments), config, compute, 128, drops=rate > 0, maps=False)
        key = jax.random.key(3) if rate else None
        out, pull = jax.vjp(lambda *qkv: attend(plan, split_heads(qkv, config), config, key, compute)[0], q, k, v)
        return out, *pull(up)

    with jax.set_mesh(mesh):
        return [np.asarray(x) for x in jax.jit(run)(q, k, v, up)]


def disentangled_gradients(mesh, shortest, backend="auto", head_size=4):
    """Of attention with relative positions, by XLA in blocks from a length of `shortest` on."""
    blocks._SHORTEST = shortest
    size, compute = 4 * head_size, Compute(attention=backend, platform="" if backend == "auto" else "tpu")
    config = BertConfig.named(
        "tiny", "deberta-v2", hidden_size=size, num_attention_heads=4, max_position_embeddings=256
    )
    random = np.random.default_rng(0)
    *qkv, up = (jnp.asarray(random.standard_normal((4, 256, size)), jnp.float32) for _ in range(4))
    tables = [jnp.asarray(random.standard_normal((512, 4, head_size)), jnp.float32) for _ in range(2)]
    ids = jnp.asarray(np.arange(256) < random.integers(100, 256, (4, 1)), jnp.int32)

    def run(qkv, tables, up):
        plan = plan_attention(AttentionMask.of(ids, None), config, compute, 256, drops=True, maps=False)
        out, pull = jax.vjp(
            lambda q, t: attend_disentangled(plan, q, config, jax.random.key(3), compute, tuple(t))[0],
            tuple(qkv),
            tables,
        )
        return out * ids[..., None], *jax.tree.leaves(pull(up * ids[..., None]))

    with jax.set_mesh(mesh):
        return [np.asarray(x) for x in jax.jit(run)(qkv, tables, up)]


def losses(mesh, rows=16, vocabulary=30):
    random = np.random.default_rng(1)
    x, table = (
        jnp.asarray(random.standard_normal(shape), jnp.float32) for shape in ((rows, 300, 32), (vocabulary, 32))
    )
    labels = jnp.asarray(random.integers(0, vocabulary, (rows, 300)), jnp.int32)
    compute = Compute(platform="tpu")

    def run(x, table, bias):
        out, pull = jax.vjp(lambda *a: vocabulary_cross_entropy(a[0], labels, *a[1:], compute)[0], x, table, bias)
        return out, *pull(jnp.sin(jnp.arange(out.size, dtype=jnp.float32)).reshape(out.shape))

    with jax.set_mesh(mesh):
        return [np.asarray(x) for x in jax.jit(run)(x, table, jnp.arange(vocabulary) / 10)]


def furthest(found, expected):
    return max(float(abs(a - b).max()) for a, b in zip(found, expected, strict=True))


if __name__ == "__main__":
    compiled = pallas.pallas_call
    pallas.pallas_call = lambda *a, **k: compiled(*a, **k | {"interpret": True})
    one, many = sharding.make_mesh(devices=jax.devices()[:1]), sharding.make_mesh(data=2, fsdp=2, tensor=2)
    seen = {
        "fused": furthest(gradients("fused", many, 0.3), gradients("xla", one, 0.3)),
        "splash": furthest(gradients("splash", many, 0.0), gradients("xla", one, 0.0)),
        "shared keys": furthest(gradients("xla", many, 0.3, 2), gradients("xla", one, 0.3, 2)),
        "shared keys by splash": furthest(gradients("splash", many, 0.0, 2), gradients("xla", one, 0.0, 2)),
        "blocks": furthest(disentangled_gradients(many, 256), disentangled_gradients(one, 1 << 30)),
        "fused disentangled": furthest(
            disentangled_gradients(many, 1 << 30, "fused", 64), disentangled_gradients(one, 1 << 30, "xla", 64)
        ),
        "losses": furthest(losses(many), losses(one)),
    }
    print(json.dumps(seen))
