"""Longformer's and BigBird's attention at 1,024 to 4,096 tokens, beside attention to all tokens.

The windows and blocks are those of the released models; the layers are narrower, so that a slow machine runs them.
"""

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import windows
from bert_jax.config import BertConfig
from bert_jax.modeling import Bert, Compute

_LAYERS, _WIDTH = 2, 256
_ATTENTION = {"longformer": "windows of 512", "big_bird": "blocks of 64", "roberta": "to all"}


def main(lengths: list[int], turns: int) -> None:
    """Print the time and the memory of a sequence classifier, forward, and forward and backward."""
    print(
        f"\n{_LAYERS} layers of {_WIDTH}, one sequence, float32, the first token global; CPU seconds, median of {turns}"
    )
    print("| family | attention | length | forward | memory | forward and backward | memory |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for family, attention in _ATTENTION.items():
        for length in lengths:
            measured = [windows.measured_apart(_classifier, length, family, gradient, turns) for gradient in (0, 1)]
            cells = " | ".join(f"{busy:.2f} s | {memory:,.0f} MB" for _, memory, busy in measured)
            print(f"| `{family}` | {attention} | {length:,} | {cells} |", flush=True)


def _classifier(length: int, family: str):
    config = BertConfig.named("tiny", family, num_hidden_layers=_LAYERS, hidden_size=_WIDTH, num_attention_heads=4,
                              intermediate_size=4 * _WIDTH, max_position_embeddings=4096, vocab_size=1000)  # fmt: skip
    model = Bert(config, "sequence_classification", Compute(layers="unroll"))
    ids = jnp.asarray(np.random.default_rng(0).integers(5, 1000, (1, length)), jnp.int32)

    def total(params):
        return jnp.square(model.apply(params, ids).logits).sum()

    return total, jax.jit(model.init)(jax.random.key(0))
