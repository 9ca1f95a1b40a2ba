"""bert_jax as a competitor in the pretraining step: `python -m benchmarks.ours DTYPE`."""

import sys
from typing import Any

import jax
import numpy as np

from benchmarks import BATCH, LENGTH, PREDICTIONS
from benchmarks.turns import serve
from bert_jax import sharding
from bert_jax.config import BertConfig
from bert_jax.modeling import Bert, Compute
from bert_jax.process import keep_freed_memory
from bert_jax.tasks.pretraining import PretrainingTask
from bert_jax.training.optimizers import make_optimizer
from bert_jax.training.state import abstract_state, init_state
from bert_jax.training.step import jit_train_step, make_train_step


def random_batch(vocab_size: int) -> dict[str, Any]:
    """Return a batch of pairs without padding."""
    rng = np.random.default_rng(0)
    return {
        "input_ids": rng.integers(1000, vocab_size, (BATCH, LENGTH), np.int32),
        "attention_mask": np.ones((BATCH, LENGTH), np.int32),
        "token_type_ids": np.repeat(np.arange(LENGTH)[None] >= LENGTH // 2, BATCH, 0).astype(np.int32),
        "masked_positions": np.sort(rng.integers(1, LENGTH, (BATCH, PREDICTIONS), np.int32)),
        "masked_labels": rng.integers(1000, vocab_size, (BATCH, PREDICTIONS), np.int32),
        "masked_weights": np.ones((BATCH, PREDICTIONS), np.float32),
        "next_sentence_labels": rng.integers(0, 2, BATCH, np.int32),
        "example_weights": np.ones(BATCH, np.float32),
    }


def pretraining_task(dtype: str) -> PretrainingTask:
    """Return the task of BERT-base with masked LM and next sentence, its layers unrolled."""
    return PretrainingTask(Bert(BertConfig.named("base"), "pretraining", Compute(dtype, "unroll")), majority_id=0)


def main(dtype: str) -> None:
    """Run training steps of BERT-base with dropout, clipping and AdamW, compiled as a run's steps are."""
    keep_freed_memory()  # as `bert-jax pretrain` does
    task = pretraining_task(dtype)
    optimizer, mesh = make_optimizer(lambda step: 1e-4), sharding.make_mesh()
    shardings = sharding.param_shardings(mesh, abstract_state(task.model.init, optimizer))
    state = init_state(task.model.init, optimizer, 0, shardings)
    step = jit_train_step(make_train_step(task, optimizer, seed=0), mesh, shardings)
    batch = random_batch(task.model.config.vocab_size)

    def work(units: int) -> int:
        nonlocal state
        for _ in range(units):
            state, _ = step(state, batch)
        jax.block_until_ready(state)
        return units * BATCH * LENGTH

    serve(work)


if __name__ == "__main__":
    main(sys.argv[1])
