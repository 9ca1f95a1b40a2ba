"""Attention by cuDNN: what the program asks for, its numbers by JAX's own implementation, and what is refused."""

import functools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.config import BertConfig
from bert_jax.modeling import Compute
from bert_jax.modeling.attention_mask import AttentionMask
from bert_jax.modeling.attention_plan import plan_attention
from bert_jax.modeling.backends import attend, split_heads

LENGTH, HEAD = 64, 32
KINDS = ("everything", "mask", "segments", "window")


def mask_of(kind):
    places = np.arange(LENGTH)
    return {
        "everything": AttentionMask(),
        "mask": AttentionMask.of(jnp.asarray(places[None] < np.array([[LENGTH], [40]])), None),
        "segments": AttentionMask.of(None, jnp.asarray(np.tile(places // 20 + 1, (2, 1)), jnp.int32)),
        "window": AttentionMask(window=9),
    }[kind]


def program(backend, kind, heads, shared):
    """Return attention with its gradients, and arguments."""
    config = BertConfig.named("tiny", hidden_size=heads * HEAD, num_attention_heads=heads, num_key_value_heads=shared)
    compute = Compute("bfloat16", attention=backend, platform="gpu")
    mask = mask_of(kind)
    random = np.random.default_rng(0)
    shapes = [(2, LENGTH, number * HEAD) for number in (heads, shared, shared, heads)]
    arguments = [jnp.asarray(random.standard_normal(shape), "bfloat16") for shape in shapes]

    def run(query, key, value, cotangent):
        plan = plan_attention(mask, config, compute, LENGTH, drops=False, maps=False)
        out, pull = jax.vjp(
            lambda *projected: attend(plan, split_heads(projected, config), config, None, compute)[0], query, key, value
        )
        return out, *pull(cotangent)

    return run, arguments


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shared", [4, 2])
def test_programs_for_gpus_call_cudnn(kind, shared, monkeypatch):
    found = SimpleNamespace(cudnn_get_version=lambda: 91000)
    monkeypatch.setattr("jax._src.cudnn.fused_attention_stablehlo.cuda_versions", found)
    run, arguments = program("cudnn", kind, 4, shared)
    traced = jax.jit(run).trace(*arguments)  # which checks shapes
    text = str(traced.jaxpr)
    assert "dot_product_attention_fwd" in text
    assert "dot_product_attention_bwd" in text
    assert " exp " not in text  # no softmax beside it
    traced.lower(lowering_platforms=("cuda",))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shared", [4, 2])
def test_masks_and_heads_are_those_of_xla(kind, shared, monkeypatch):
    run, arguments = program("xla", kind, 4, shared)
    expected = run(*arguments)
    function = jax.nn.dot_product_attention

    @functools.wraps(function)
    def on_a_cpu(*args, implementation, **options):
        assert implementation == "cudnn"
        return function(*args, implementation="xla", **options)

    monkeypatch.setattr(jax.nn, "dot_product_attention", on_a_cpu)
    run, arguments = program("cudnn", kind, 4, shared)
    for a, b in zip(run(*arguments), expected, strict=True):
        a, b = (np.asarray(x, np.float32) for x in (a, b))
        assert np.linalg.norm(a - b) < 1e-2 * np.linalg.norm(b)


@pytest.mark.parametrize(
    ("capability", "length", "head", "backend"),
    [
        ("9.0", 512, 64, "cudnn"),
        ("8.0", 512, 64, "cudnn"),
        ("7.5", 512, 64, "xla"),
        ("gfx942", 512, 64, "xla"),
        ("9.0", 513, 64, "xla"),
        ("9.0", 512, 20, "xla"),
        ("9.0", 512, 192, "xla"),
    ],
)
def test_what_cudnn_cannot_do_xla_does(capability, length, head, backend, monkeypatch):
    monkeypatch.setattr(jax, "devices", lambda: [SimpleNamespace(compute_capability=capability)])
    config = BertConfig.named("tiny", hidden_size=2 * head, num_attention_heads=2)
    compute = Compute("bfloat16", platform="gpu")
    plan = plan_attention(AttentionMask(), config, compute, length, drops=False, maps=False)
    assert plan.backend == backend
