"""Effect of remat, scanning, sharding, attention backend and dropout bits on BERT-large on a TPU slice.

The steps are compiled by the TPU compiler, not run: `bert-jax plan` with one change at a time.
"""

from collections.abc import Callable, Iterator
from unittest import mock

import jax
import jax.numpy as jnp

from bert_jax import recipes
from bert_jax.modeling import dropout
from bert_jax.planning.plan import StagePlan, plan
from bert_jax.planning.slices import find_slice

CONFIG = "bert_large"
STAGES = "stages=((1000000, 512, 256),)"
VARIANTS: dict[str, tuple[str, ...]] = {
    "the recipe": (),
    "remat=none": ("remat=none",),
    "remat=full": ("remat=full",),
    "layers=unroll": ("layers=unroll",),
    "mesh.data=16, mesh.fsdp=1": ("mesh.data=16", "mesh.fsdp=1"),
    "mesh.fsdp=8, mesh.tensor=2": ("mesh.fsdp=8", "mesh.tensor=2"),
    "attention=xla": ("attention=xla",),
    "attention=fused, no dropout of attention": ("attention=fused", "model.attention_probs_dropout_prob=0.0"),
    "attention=splash, no dropout of attention": ("attention=splash", "model.attention_probs_dropout_prob=0.0"),
    "bits of all dropout but attention's by threefry": (),
    "the same by rbg": (),
    "no dropout": ("model.attention_probs_dropout_prob=0.0", "model.hidden_dropout_prob=0.0"),
}
GENERATORS = {"bits of all dropout but attention's by threefry": "threefry2x32", "the same by rbg": "rbg"}


def bits_of(implementation: str) -> Callable[..., jax.Array]:
    """Return random bits of one of JAX's generators for every element."""

    def bits(key: jax.Array, shape: tuple[int, ...], at: None = None) -> jax.Array:
        words = jax.random.key_data(key)
        if implementation == "rbg":
            words = jnp.concatenate([words, words])
        return jax.random.bits(jax.random.wrap_key_data(words, impl=implementation), shape, jnp.uint32)

    return bits


def measured(topology: str) -> Iterator[tuple[str, StagePlan]]:
    """Yield each variant and its plan."""
    for name, changes in VARIANTS.items():
        bits = bits_of(GENERATORS[name]) if name in GENERATORS else dropout.random_bits
        with mock.patch.object(dropout, "random_bits", bits):
            made = plan(recipes.load_recipe(CONFIG, [STAGES, *changes]), find_slice(topology))
        yield name, made.stages[0]


def main(topology: str) -> None:
    """Print a table in Markdown."""
    jax.config.update("jax_platforms", "cpu")
    print(f"BERT-large, 256 x 512, on {topology}\n")
    print("| | peak GiB | HBM GB a step | roofline ms | MFU | compiled in s |\n|---|---|---|---|---|---|")
    for name, stage in measured(topology):
        step = f"{stage.seconds.step * 1e3:.0f}" if stage.seconds else "does not fit"
        row = (name, f"{stage.peak_bytes / 2**30:.1f}", f"{stage.hbm_bytes / 1e9:.0f}", step, f"{stage.mfu:.0%}",
               f"{stage.compile_seconds:.0f}")  # fmt: skip
        print("| " + " | ".join(row) + " |", flush=True)
