"""bert_jax as a competitor: `python -m benchmarks.ours pretraining|encoding DTYPE [SIZE SEQUENCES TOKENS]`."""

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import BATCH, LENGTH, predictions
from benchmarks.turns import peak_and_resident_memory, serve
from bert_jax import parameter_sharding, sharding
from bert_jax.config import BertConfig
from bert_jax.modeling import Bert, Compute
from bert_jax.process import MemoryBound, keep_freed_memory
from bert_jax.tasks.pretraining.task import PretrainingTask
from bert_jax.training.optimizers import make_optimizer
from bert_jax.training.state import abstract_state, init_state
from bert_jax.training.step import jit_train_step, make_train_step


def random_batch(vocab_size: int, sequences: int = BATCH, length: int = LENGTH) -> dict[str, Any]:
    """Return a batch of pairs without padding."""
    rng, masked = np.random.default_rng(0), (sequences, predictions(length))
    return {
        "input_ids": rng.integers(1000, vocab_size, (sequences, length), np.int32),
        "attention_mask": np.ones((sequences, length), np.int32),
        "token_type_ids": np.repeat(np.arange(length)[None] >= length // 2, sequences, 0).astype(np.int32),
        "masked_positions": np.sort(rng.integers(1, length, masked, np.int32)),
        "masked_labels": rng.integers(1000, vocab_size, masked, np.int32),
        "masked_weights": np.ones(masked, np.float32),
        "next_sentence_labels": rng.integers(0, 2, sequences, np.int32),
        "example_weights": np.ones(sequences, np.float32),
    }


def model(head: str, dtype: str, size: str) -> Bert:
    """Return a model whose layers are as recipes have them."""
    layers = "unroll" if jax.default_backend() == "cpu" else "scan"
    return Bert(BertConfig.named(size), head, Compute(dtype, layers))


def pretraining_task(dtype: str, size: str = "base") -> PretrainingTask:
    """Return the task of masked LM and next sentence."""
    return PretrainingTask(model("pretraining", dtype, size), majority_id=0)


def pretraining(dtype: str, size: str, sequences: int, length: int) -> None:
    """Run training steps with dropout, clipping and AdamW, compiled as a run's steps are; an item is a token."""
    task = pretraining_task(dtype, size)
    optimizer, mesh = make_optimizer(lambda step: 1e-4), sharding.make_mesh()
    shardings = parameter_sharding.param_shardings(mesh, abstract_state(task.model.init, optimizer))
    state = init_state(task.model.init, optimizer, 0, shardings)
    step = jit_train_step(make_train_step(task, optimizer), mesh, shardings)
    batch, bound = random_batch(task.model.config.vocab_size, sequences, length), MemoryBound()

    def work(units: int) -> int:
        nonlocal state
        for _ in range(units):
            state, _ = step(state, batch, 0)
            bound.check()  # as a run does after each step
        jax.block_until_ready(state)
        return units * sequences * length

    serve(work, _memory)


def encoding(dtype: str, size: str, sequences: int, length: int) -> None:
    """Compute sentence embeddings with weights in `dtype`; an item is a token."""
    bert = model("sentence_embedding", dtype, size)
    params = jax.tree.map(lambda leaf: leaf.astype(dtype), bert.init(jax.random.key(0)))
    whole = random_batch(bert.config.vocab_size, sequences, length)
    inputs = {name: jnp.asarray(whole[name]) for name in ("input_ids", "attention_mask", "token_type_ids")}
    forward = jax.jit(lambda params, inputs: bert.apply(params, **inputs).sentence_embedding)

    def work(units: int) -> int:
        jax.block_until_ready([forward(params, inputs) for _ in range(units)])
        return units * sequences * length

    serve(work, _memory)


def _memory() -> tuple[int, int]:
    """Return peak and present memory of the device, or on a CPU of the process, in bytes."""
    counted = jax.local_devices()[0].memory_stats()
    return (counted["peak_bytes_in_use"], counted["bytes_in_use"]) if counted else peak_and_resident_memory()


if __name__ == "__main__":
    keep_freed_memory()  # as `bert-jax pretrain` does
    what, dtype, size, sequences, length = (*sys.argv[1:], "base", BATCH, LENGTH)[:5]
    {"pretraining": pretraining, "encoding": encoding}[what](dtype, size, int(sequences), int(length))
