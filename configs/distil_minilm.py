r"""MiniLM: a student of any width and number of heads learns the self-attention relations of a pretrained teacher.

    bert-jax prepare corpus.txt --tokenizer path/to/all-MiniLM-L6-v2 --out prepared --objective mlm
    bert-jax distill --config distil_minilm:prepared --workdir runs/minilm \
        --config.distillation.teacher=path/to/all-MiniLM-L6-v2

The argument is the directory that `prepare` wrote. The teacher needs no masked-LM head, as the masked-LM loss has
weight 0. Fine-tuning can start from the finished model: `--config.init_from=runs/minilm/model`.

Wang et al. 2020 (arXiv:2002.10957) learn the relations qk and vv of the last layer, with as many relation heads as the
teacher has attention heads; Wang et al. 2021 (arXiv:2012.15828) learn qq, kk and vv with 48 relation heads, and for a
large teacher use a layer below the last.
"""

from ml_collections import ConfigDict

from bert_jax import recipes


def get_config(prepared: str = "prepared") -> ConfigDict:
    """The recipe."""
    c = recipes.pretraining()
    c.data.prepared = prepared
    c.data.mask_replace_prob = c.data.random_replace_prob = 0.0  # teacher and student read unmasked text
    c.num_steps = 20_000
    c.global_batch_size = 256
    c.optimizer.learning_rate = 6e-4
    c.optimizer.schedule = "linear"
    c.optimizer.warmup_steps = 1_000
    c.optimizer.bias_correction = True
    c.model.num_hidden_layers, c.model.hidden_size = 3, 192
    c.model.num_attention_heads, c.model.intermediate_size = 6, 768
    c.distillation.relations = ("qq", "kk", "vv")
    c.distillation.relation_heads = 24
    c.distillation.weights.labels = 0.0
    c.distillation.weights.relations = 1.0
    return c
