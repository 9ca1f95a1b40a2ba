"""Savings of local attention: ModernBERT's local attention compared with global attention, alone and in the model."""

import multiprocessing
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.turns import peak_and_resident_memory
from bert_jax.config import BertConfig
from bert_jax.modeling import Bert, Compute
from bert_jax.modeling.attention_mask import AttentionMask
from bert_jax.modeling.attention_plan import plan_attention
from bert_jax.modeling.backends import attend, split_heads

# A quarter of ModernBERT-base's layers: seconds and memory of a layer are what is compared.
_LAYERS = 6
_WINDOW = 64


def main(lengths: list[int], turns: int) -> None:
    """Print the time and the memory of a forward pass, and of a forward and backward pass."""
    for run, what in (
        (_attention, f"attention of one layer: within {_WINDOW} tokens, to all"),
        (_model, f"{_LAYERS} layers: two of three within {_WINDOW} tokens, all to all"),
    ):
        print(f"\nModernBERT-base, one sequence, float32; {what}", flush=True)
        print("| length | attention | forward | memory | forward and backward | memory |\n|---|---|---|---|---|---|")
        for length in lengths:
            for name, window in (("windows", _WINDOW), ("global", None)):
                measured = [_apart(run, length, window, gradient, turns) for gradient in (False, True)]
                cells = " | ".join(f"{seconds:.2f} s | {memory:,.0f} MB" for seconds, memory in measured)
                print(f"| {length:,} | {name} | {cells} |", flush=True)


def _apart(*case) -> tuple[float, float]:
    """Run `_measured` in a separate process."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_measured, *case).result()


def _measured(run, length: int, window: int | None, gradient: bool, turns: int) -> tuple[float, float]:
    """Return the median seconds, and the growth of resident memory in MB.

    The compiler's memory analysis does not count allocations of library calls, such as the scores of attention.
    """
    function, *inputs = run(length, window)
    if gradient:
        function = jax.grad(function)
    compiled = jax.jit(function).lower(*inputs).compile()
    jax.block_until_ready(inputs)
    _, before = peak_and_resident_memory()
    Path("/proc/self/clear_refs").write_text("5")  # the highest so far is the present
    seconds = []
    for _ in range(turns + 1):
        start = time.perf_counter()
        jax.block_until_ready(compiled(*inputs))
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[1:]), (peak_and_resident_memory()[0] - before) / 1e6


def _attention(length: int, window: int | None):
    config, compute = BertConfig.named("base", "modernbert"), Compute()
    shape = (1, length, config.hidden_size)
    projected = tuple(jax.random.normal(jax.random.key(i), shape) for i in range(3))
    mask = AttentionMask(window=window)

    def total(projected):
        plan = plan_attention(mask, config, compute, length, drops=False, maps=False)
        return jnp.square(attend(plan, split_heads(projected, config), config, None, compute)[0]).sum()

    return total, projected


def _model(length: int, window: int | None):
    config = BertConfig.named("base", "modernbert", num_hidden_layers=_LAYERS, local_window=window)
    model = Bert(config, "encoder", Compute(layers="unroll"))
    ids = jnp.asarray(np.random.default_rng(0).integers(5, 50_000, (1, length)), jnp.int32)

    def total(params):
        return jnp.square(model.apply(params, ids).last_hidden_state).sum()

    return total, jax.jit(model.init)(jax.random.key(0))
