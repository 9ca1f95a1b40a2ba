r"""ModernBERT-base: rotary positions, gated layers, mostly local attention, and 30% of the tokens masked.

    bert-jax prepare corpus/ --tokenizer path/to/tokenizer.json --objective mlm --max-seq-length 1024 --dupe-factor 1 \
        --pack --out prepared/
    bert-jax pretrain --config modernbert_base --workdir runs/modernbert --config.data.prepared=prepared/

This is the first of the paper's stages: 1.7T tokens in rows of 1,024. Here the learning rate falls to 0 at the end; in
the paper it falls only after another 250B tokens in rows of 8,192, with model.rope_theta=160000. The batch is for
hundreds of chips; on fewer, split it (accumulation_steps). AdamW with gradient clipping replaces StableAdamW.

Warner et al. 2024 (arXiv:2412.13663), section 3 and appendix A.
"""

from ml_collections import ConfigDict

from bert_jax import recipes


def get_config() -> ConfigDict:
    """The recipe."""
    c = recipes.pretraining()
    c.model.family, c.model.size = "modernbert", "base"
    c.model.rope_theta = c.model.local_rope_theta = 10_000.0
    c.mesh.data, c.mesh.fsdp = 1, -1  # docs/tpu_choices.md; with several slices, data = their number
    c.num_steps = 364_000
    c.global_batch_size = 4608
    c.eval_batch_size = 256
    c.optimizer.learning_rate = 8e-4
    c.optimizer.schedule = "wsd"
    c.optimizer.warmup_steps = 640  # 3B tokens
    c.optimizer.weight_decay = 1e-5
    c.optimizer.beta2 = 0.98
    c.optimizer.bias_correction = True
    c.data.sequence_length = 1024
    c.data.mask_prob = 0.3
    c.eval_every = 5_000
    c.checkpoint_every = 2_500
    c.data.eval_batches = 100
    return c
