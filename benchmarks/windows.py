"""What local attention spares: ModernBERT's layers with windows, beside the same model with global attention alone."""

import time

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.config import BertConfig
from bert_jax.modeling import Bert, Compute

# A quarter of ModernBERT-base's layers: seconds and memory of a layer are what is compared.
_LAYERS = 6


def main(lengths: list[int], turns: int) -> None:
    """Prints seconds of forward and of forward and backward, and the temporaries that the compiled program keeps."""
    print("ModernBERT-base, 6 layers, one sequence, float32: seconds and GB of temporaries", flush=True)
    print("| length | attention | forward | GB | forward and backward | GB |\n|---|---|---|---|---|---|")
    for length in lengths:
        for name, window in (("2 of 3 layers in windows", 64), ("global alone", None)):
            forward, backward = (_measured(length, window, turns, gradient) for gradient in (False, True))
            cells = " | ".join(f"{seconds:.2f} | {size:.2f}" for seconds, size in (forward, backward))
            print(f"| {length:,} | {name} | {cells} |", flush=True)


def _measured(length: int, window: int | None, turns: int, gradient: bool) -> tuple[float, float]:
    config = BertConfig.named("base", "modernbert", num_hidden_layers=_LAYERS, local_window=window)
    model = Bert(config, "encoder", Compute(layers="unroll"))
    ids = jnp.asarray(np.random.default_rng(0).integers(5, 50_000, (1, length)), jnp.int32)

    def total(params):
        return jnp.square(model.apply(params, ids).last_hidden_state).sum()

    params = jax.jit(model.init)(jax.random.key(0))
    run = jax.jit(jax.grad(total) if gradient else total).lower(params).compile()
    seconds = []
    for _ in range(turns + 1):
        start = time.perf_counter()
        jax.block_until_ready(run(params))
        seconds.append(time.perf_counter() - start)
    return sorted(seconds[1:])[turns // 2], run.memory_analysis().temp_size_in_bytes / 1e9
