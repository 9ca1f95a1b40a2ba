"""ELECTRA-small: a generator with a quarter of the width fills in tokens, and the discriminator finds them; 1M steps.

    bert-jax prepare corpus/ --tokenizer vocab.txt --objective mlm --max-seq-length 128 --out prepared/
    bert-jax pretrain --config electra_small --workdir runs/electra --config.data.prepared=prepared/

The discriminator is written to model/, for fine-tuning; the generator, to model/generator/.

Clark et al. 2020 (arXiv:2003.10555), section 3 and table 6. The base model has model.size=base, embeddings as wide as
its layers (model.embedding_size=768), model.generator_size=0.333, batches of 256 sequences of 512 tokens, and a
learning rate of 2e-4.
"""

from ml_collections import ConfigDict

from bert_jax import recipes


def get_config() -> ConfigDict:
    """The recipe."""
    c = recipes.electra()
    c.model.size = "small"
    c.model.embedding_size = 128
    c.model.generator_size = 0.25
    c.discriminator_weight = 50.0
    c.num_steps = 1_000_000
    c.global_batch_size = 128
    c.optimizer.learning_rate = 5e-4
    c.optimizer.schedule = "linear"
    c.optimizer.warmup_steps = 10_000
    c.optimizer.weight_decay = 0.01
    c.data.sequence_length = 128
    c.data.mask_prob = 0.15
    c.eval_every = 10_000
    c.checkpoint_every = 5_000
    c.data.eval_batches = 100
    return c
