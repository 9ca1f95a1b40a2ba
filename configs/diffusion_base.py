"""BERT-base pretrained by masked diffusion, as a model that generates text: 1M steps of 256 sequences of 128 tokens.

    bert-jax prepare corpus/ --tokenizer vocab.txt --objective mlm --max-seq-length 128 --out prepared/
    bert-jax pretrain --config diffusion_base --workdir runs/base --config.data.prepared=prepared/
    bert-jax generate runs/base/model "" --max-new-tokens 64

The mask rate of an example is uniform between 0 and 1, in place of BERT's 15% (Sahoo et al. 2024, arXiv:2406.07524).
Optimizer and schedule are BERT's (Devlin et al. 2018, arXiv:1810.04805, appendix A.2).
"""

from ml_collections import ConfigDict

from bert_jax import recipes


def get_config() -> ConfigDict:
    """The recipe."""
    c = recipes.diffusion_pretraining()
    c.model.size = "base"
    c.mesh.data, c.mesh.fsdp = 1, -1  # docs/tpu_choices.md
    c.num_steps = 1_000_000
    c.global_batch_size = 256
    c.optimizer.learning_rate = 1e-4
    c.optimizer.warmup_steps = 10_000
    c.data.sequence_length = 128
    c.eval_every = 10_000
    c.checkpoint_every = 5_000
    c.data.eval_batches = 100
    return c
