"""The masked-LM loss and its gradient on one TPU chip, beside tokamax's fused kernel: compiled, not run.

python -m benchmarks tpu_loss, with `pip install tokamax`.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from bert_jax import sharding
from bert_jax.modeling import Compute, losses
from bert_jax.planning.hlo import HloModule
from bert_jax.planning.slices import find_slice
from bert_jax.training.peaks import peak_flops

VOCABULARY = 30_592  # 30,522, filled up to a multiple of 128
ROWS = 16  # sequences of a chip
BLOCK = 1024  # tokamax takes whole blocks of tokens
# Tokens scored in a sequence, and the width: BERT-base at 128 tokens, BERT-large by MLPerf's shape, all of 512 tokens.
CASES = ((20, 768), (76, 1024), (512, 768))


def main(topology: str) -> None:
    """Print the time of the products at the peak, the bytes and the temporaries of each case.

    A kernel's operands count once, although it reads the table again for every 1,024 tokens.
    """
    jax.config.update("jax_platforms", "cpu")
    mesh = sharding.make_mesh(devices=find_slice(topology).devices[:1])
    where = NamedSharding(mesh, PartitionSpec())
    print(f"loss and gradient of {ROWS} sequences over {VOCABULARY:,} tokens in bfloat16, one chip of {topology}\n")
    print("| scored, a sequence | width | | products, ms | HBM MB | HBM, ms | temporaries MB |")
    print("|---|---|---|---|---|---|---|", flush=True)
    chip = find_slice(topology).chip
    for scored, width in CASES:
        for name, (step, products, block) in VARIANTS.items():
            x = jax.ShapeDtypeStruct((ROWS, scored, width), jnp.bfloat16, sharding=where)
            labels = jax.ShapeDtypeStruct((ROWS, scored), jnp.int32, sharding=where)
            table = jax.ShapeDtypeStruct((VOCABULARY, width), jnp.bfloat16, sharding=where)
            with jax.set_mesh(mesh):
                compiled = jax.jit(step).lower(x, labels, table).compile()
            moved = HloModule(compiled.as_text()).hbm_bytes()
            memory = compiled.memory_analysis().temp_size_in_bytes
            tokens = math.ceil(ROWS * scored / block) * block
            flops = products * 2 * tokens * width * VOCABULARY
            print(
                f"| {scored} | {width} | {name} | {1e3 * flops / (peak_flops(mesh.devices.flat[0]) or 1):.2f} | "
                f"{moved / 1e6:.0f} | {1e3 * moved / chip.hbm_bandwidth:.2f} | {memory / 1e6:.0f} |", flush=True
            )  # fmt: skip


def _ours(x: jax.Array, labels: jax.Array, table: jax.Array) -> Any:
    def loss(x: jax.Array, table: jax.Array) -> jax.Array:
        bias, compute = jnp.zeros(len(table), jnp.float32), Compute("bfloat16", platform="tpu")
        return losses.vocabulary_cross_entropy(x, labels, table, bias, compute)[0].sum()

    return jax.value_and_grad(loss, argnums=(0, 1))(x, table)


def _whole(x: jax.Array, labels: jax.Array, table: jax.Array) -> Any:
    def loss(x: jax.Array, table: jax.Array) -> jax.Array:
        logits = jnp.einsum("bpd,vd->bpv", x, table, preferred_element_type=jnp.float32)
        return losses.cross_entropy(logits, labels)[0].sum()

    return jax.value_and_grad(loss, argnums=(0, 1))(x, table)


def _fused(x: jax.Array, labels: jax.Array, table: jax.Array) -> Any:
    """The kernels themselves, as tokamax's operation asks for the chip of the process; blocks as for a v5e."""
    from tokamax._src.ops.linear_softmax_cross_entropy_loss import pallas_mosaic_tpu_kernel as kernels

    blocks = {"b_block_size": BLOCK, "h_block_size": 512, "v_block_size": 512, "reduction": "sum"}
    count = labels.size
    more = -count % BLOCK
    rows, labels = jnp.pad(x.reshape(count, -1), ((0, more), (0, 0))), jnp.pad(labels.reshape(count), (0, more))
    table = table.T
    loss, normalizer = kernels.linear_softmax_cross_entropy_loss_fwd_pallas_mosaic_tpu(rows, labels, table, **blocks)
    one = jnp.float32(1)
    return loss, kernels.linear_softmax_cross_entropy_loss_bwd_pallas_mosaic_tpu(
        one, normalizer, rows, labels, table, **blocks
    )


# The function, its products of tokens, width and vocabulary, and the tokens that it takes at once. tokamax computes the
# logits again in the backward pass.
VARIANTS = {"bert_jax": (_ours, 3, 1), "tokamax, fused": (_fused, 4, BLOCK), "all logits": (_whole, 3, 1)}
