"""LAMB with 4,096 examples per step, on a model small enough for one CPU core: 100 steps take half an hour.

    bert-jax prepare files:books/ --tokenizer vocab.txt --out prepared/ --max-seq-length 32
    bert-jax pretrain --config lamb_4096 --workdir runs/lamb --config.data.prepared=prepared/

You et al. 2019, arXiv:1904.00962. On a TPU slice, larger models need fewer accumulation_steps for the same batch.
"""

from ml_collections import ConfigDict

from bert_jax import recipes


def get_config() -> ConfigDict:
    """The recipe."""
    c = recipes.pretraining()
    c.model.size = "tiny"
    c.model.initializer_range = 0.06  # LAMB's updates are proportional to a matrix's norm, so a small one grows slowly
    c.num_steps = 100
    c.data.sequence_length = 32
    c.global_batch_size = 4096
    c.accumulation_steps = 16
    c.optimizer.name = "lamb"
    c.optimizer.bias_correction = True
    c.optimizer.learning_rate = 1e-2  # fraction of a matrix's norm per step; high, as there are few steps
    c.optimizer.schedule = "linear"
    c.optimizer.warmup_steps = 0
    c.optimizer.warmup_ratio = 0.1
    c.log_every = 5
    c.eval_every, c.eval_batch_size = 10, 256
    c.data.eval_batches = 8
    c.checkpoint_every = 50
    return c
