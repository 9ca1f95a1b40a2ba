r"""Quantization-aware fine-tuning on SST-2: a classifier adapts to int4 weights.

    bert-jax finetune --config sst2_minilm:path/to/SST-2 --workdir runs/sst2 \
        --config.init_from=path/to/all-MiniLM-L6-v2
    bert-jax finetune --config quantized_sst2:path/to/SST-2 --workdir runs/sst2_int4 --config.init_from=runs/sst2/model

The argument is the directory of the data's train.tsv and dev.tsv (from GLUE). The run starts from a fine-tuned
classifier and keeps its head, so that one epoch with a small learning rate is enough. The finished model is quantized;
for another mode, set `--config.quantization.mode=int8`.

Jacob et al. 2018 (arXiv:1712.05877), section 3; Bengio et al. 2013 (arXiv:1308.3432), for the gradient of rounding.
"""

from ml_collections import ConfigDict

from bert_jax import recipes


def get_config(directory: str = "SST-2") -> ConfigDict:
    """The recipe."""
    c = recipes.classification()
    c.keep_head = True
    c.quantization.mode = "int4"
    c.global_batch_size = 32
    c.num_epochs = 1.0
    c.optimizer.learning_rate = 2e-5
    c.optimizer.schedule = "linear"
    c.optimizer.warmup_ratio = 0.06
    c.optimizer.bias_correction = True
    c.data.train, c.data.dev = f"{directory}/train.tsv", f"{directory}/dev.tsv"
    c.data.max_seq_length = 128
    c.data.metrics = ("accuracy",)
    return c
