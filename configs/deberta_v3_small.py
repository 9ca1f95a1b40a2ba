r"""DeBERTa-v3-small: replaced-token detection with gradient-disentangled embeddings; 125K steps of 2,048 x 512 tokens.

    bert-jax prepare corpus/ --tokenizer deberta-v3-small/ --objective mlm --max-seq-length 512 --dupe-factor 1 \
        --out prepared/
    bert-jax pretrain --config deberta_v3_small --workdir runs/deberta --config.data.prepared=prepared/

The discriminator is written to model/, a DeBERTa-v3 to fine-tune; the generator, with half as many layers, to
model/generator/. Any tokenizer works. The generator predicts tokens with a plain masked-LM head, without the position
embeddings of DeBERTa's enhanced mask decoder.

He et al. 2021 (arXiv:2111.09543), section 3: the steps, the batch and the learning rate are those for Wikipedia and
books. For the base model, set model.size=base and model.generator_layers=6.
"""

from ml_collections import ConfigDict

from bert_jax import recipes


def get_config() -> ConfigDict:
    """The recipe."""
    c = recipes.electra()
    c.model.family, c.model.size = "deberta-v2", "small"
    c.model.generator_size, c.model.generator_layers = 1.0, 3
    c.model.embedding_sharing = "gdes"
    c.discriminator_weight = 50.0
    c.mesh.data, c.mesh.fsdp = 1, -1  # docs/tpu_choices.md; with several slices, data = their number
    c.num_steps = 125_000
    c.global_batch_size = 2048
    c.eval_batch_size = 256
    c.optimizer.learning_rate = 5e-4
    c.optimizer.schedule = "linear"
    c.optimizer.warmup_steps = 10_000
    c.optimizer.weight_decay = 0.01
    c.optimizer.beta2 = 0.98
    c.optimizer.bias_correction = True
    c.data.sequence_length = 512
    c.data.mask_prob = 0.15
    c.eval_every = 10_000
    c.checkpoint_every = 2_500
    c.data.eval_batches = 100
    return c
