r"""RoBERTa-base: 500K steps of 8,192 full rows of 512 tokens, with dynamic masking and without sentence pairs.

    bert-jax prepare corpus/ --tokenizer path/to/tokenizer.json --objective mlm --max-seq-length 512 --dupe-factor 1 \
        --out prepared/
    bert-jax pretrain --config roberta_base --workdir runs/roberta --config.data.prepared=prepared/

The tokenizer is RoBERTa's byte-level BPE, or any other. The batch is for hundreds of chips; on fewer, split it
(accumulation_steps).

Liu et al. 2019 (arXiv:1907.11692), section 4 and table 9.
"""

from ml_collections import ConfigDict

from bert_jax import recipes


def get_config() -> ConfigDict:
    """The recipe."""
    c = recipes.pretraining()
    c.model.family, c.model.size = "roberta", "base"
    c.model.type_vocab_size = 1
    c.mesh.data, c.mesh.fsdp = 1, -1  # docs/tpu_choices.md; with several slices, data = their number
    c.num_steps = 500_000
    c.global_batch_size = 8192
    c.eval_batch_size = 256
    c.optimizer.learning_rate = 6e-4
    c.optimizer.schedule = "linear"
    c.optimizer.warmup_steps = 24_000
    c.optimizer.weight_decay = 0.01
    c.optimizer.beta2 = 0.98
    c.optimizer.clip_norm = 0.0
    c.optimizer.bias_correction = True
    c.data.sequence_length = 512
    c.eval_every = 10_000
    c.checkpoint_every = 2_500
    c.data.eval_batches = 100
    return c
