"""BERT-large as in the paper: 1M steps of 256 sequences, 90% of them at 128 tokens and the rest at 512.

    bert-jax prepare corpus/ --tokenizer vocab.txt --max-seq-length 128,512 --out prepared/
    bert-jax pretrain --config bert_large --workdir runs/bert_large --config.data.prepared=prepared/

Devlin et al. 2018 (arXiv:1810.04805), section 3 and appendix A.2.
"""

from ml_collections import ConfigDict

from bert_jax import recipes


def get_config() -> ConfigDict:
    """The recipe."""
    c = recipes.pretraining()
    c.model.size = "large"
    c.mesh.data, c.mesh.fsdp = 1, -1  # docs/tpu_choices.md; with several slices, data = their number
    c.stages = ((900_000, 128, 256), (100_000, 512, 256))
    c.optimizer.learning_rate = 1e-4
    c.optimizer.warmup_steps = 10_000
    c.optimizer.weight_decay = 0.01
    c.eval_every = 10_000
    c.checkpoint_every = 5_000
    c.data.eval_batches = 100
    return c
