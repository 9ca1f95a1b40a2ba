"""Longformer's and BigBird's attention at 1,024 to 4,096 tokens, beside attention to all tokens.

The windows and blocks are those of the released models; the layers are narrower, so that a slow machine runs them.
"""

import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.config import BertConfig
from bert_jax.modeling import Bert, Compute

_LAYERS, _WIDTH = 2, 256
_ATTENTION = {"longformer": "windows of 512", "big_bird": "blocks of 64", "roberta": "to all"}


def main(lengths: list[int], turns: int) -> None:
    """Print the time and the memory of a sequence classifier, forward, and forward and backward."""
    print(f"\n{_LAYERS} layers of {_WIDTH}, one sequence, float32; CPU seconds, median of {turns}, and temporaries")
    print("| family | attention | length | forward | memory | forward and backward | memory |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for family, attention in _ATTENTION.items():
        for length in lengths:
            measured = [_measured(family, length, gradient, turns) for gradient in (False, True)]
            cells = " | ".join(f"{seconds:.2f} s | {memory:,.0f} MB" for seconds, memory in measured)
            print(f"| `{family}` | {attention} | {length:,} | {cells} |", flush=True)


def _measured(family: str, length: int, gradient: bool, turns: int) -> tuple[float, float]:
    """Return the median seconds of all processors, which other processes disturb little, and the temporaries in MB."""
    config = BertConfig.named("tiny", family, num_hidden_layers=_LAYERS, hidden_size=_WIDTH, num_attention_heads=4,
                              intermediate_size=4 * _WIDTH, max_position_embeddings=4096, vocab_size=1000)  # fmt: skip
    model = Bert(config, "sequence_classification", Compute(layers="scan"))
    ids = jnp.asarray(np.random.default_rng(0).integers(5, 1000, (1, length)), jnp.int32)

    def total(params, ids):
        return jnp.square(model.apply(params, ids, output_last_hidden_state=False).logits).sum()

    params = jax.jit(model.init)(jax.random.key(0))
    compiled = jax.jit(jax.grad(total) if gradient else total).lower(params, ids).compile()
    seconds = []
    for _ in range(turns + 1):
        start = time.process_time()
        jax.block_until_ready(compiled(params, ids))
        seconds.append(time.process_time() - start)
    return statistics.median(seconds[1:]), compiled.memory_analysis().temp_size_in_bytes / 1e6
