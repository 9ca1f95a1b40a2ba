"""bert_jax as a competitor in the pretraining step: `python -m benchmarks.ours DTYPE`."""

import sys

import jax
import numpy as np

from benchmarks import BATCH, LENGTH, PREDICTIONS
from benchmarks.turns import serve
from bert_jax.config import BertConfig
from bert_jax.modeling import Bert, Compute
from bert_jax.process import keep_freed_memory
from bert_jax.tasks.pretraining import PretrainingTask
from bert_jax.training.optimizers import make_optimizer
from bert_jax.training.state import State
from bert_jax.training.step import make_train_step


def main(dtype: str) -> None:
    """Run training steps of BERT-base: masked LM and next sentence, dropout, clipping, AdamW."""
    keep_freed_memory()  # as `bert-jax pretrain` does
    config = BertConfig.named("base")
    task = PretrainingTask(Bert(config, "pretraining", Compute(dtype, "unroll")), majority_id=0)
    optimizer = make_optimizer(lambda step: 1e-4)
    step = jax.jit(make_train_step(task, optimizer, seed=0), donate_argnums=0)
    params = task.model.init(jax.random.key(0))
    state = State(params, optimizer.init(params), jax.numpy.zeros([], "int32"))
    rng = np.random.default_rng(0)
    batch = {
        "input_ids": rng.integers(1000, config.vocab_size, (BATCH, LENGTH), np.int32),
        "attention_mask": np.ones((BATCH, LENGTH), np.int32),
        "token_type_ids": np.repeat(np.arange(LENGTH)[None] >= LENGTH // 2, BATCH, 0).astype(np.int32),
        "masked_positions": np.sort(rng.integers(1, LENGTH, (BATCH, PREDICTIONS), np.int32)),
        "masked_labels": rng.integers(1000, config.vocab_size, (BATCH, PREDICTIONS), np.int32),
        "masked_weights": np.ones((BATCH, PREDICTIONS), np.float32),
        "next_sentence_labels": rng.integers(0, 2, BATCH, np.int32),
        "example_weights": np.ones(BATCH, np.float32),
    }

    def work(units: int) -> int:
        nonlocal state
        for _ in range(units):
            state, _ = step(state, batch)
        jax.block_until_ready(state)
        return units * BATCH * LENGTH

    serve(work)


if __name__ == "__main__":
    main(sys.argv[1])
