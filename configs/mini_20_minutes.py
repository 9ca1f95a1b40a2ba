"""A small BERT that learns as much as it can from 20 minutes of one CPU core: plain English books, four layers of 256.

    bert-jax prepare files:books/ --tokenizer vocab.txt --out prepared/ --max-seq-length 32,128
    bert-jax pretrain --config mini_20_minutes --workdir runs/mini --config.data.prepared=prepared/

Comments say where and why the values differ from the BERT paper's.
"""

from ml_collections import ConfigDict

from bert_jax import recipes


def get_config() -> ConfigDict:
    """The recipe."""
    c = recipes.pretraining()
    c.model.size = "mini"
    c.model.initializer_range = 0.06  # 1/sqrt(hidden_size); BERT's 0.02 suits a model ten times as wide
    c.model.hidden_dropout_prob = c.model.attention_probs_dropout_prob = 0.0  # no text is seen twice
    c.dtype = "bfloat16"
    # At first the model learns from neighbouring words, so short sequences suffice; longer ones train all positions.
    c.stages = ((400, 32, 128), (340, 128, 32))
    c.optimizer.name = "muon"
    c.optimizer.learning_rate = 3e-3
    c.optimizer.schedule = "linear"
    c.optimizer.warmup_steps = 0
    c.optimizer.warmup_ratio = 0.1
    c.optimizer.beta2 = 0.98
    c.eval_every, c.eval_batch_size = 185, 32
    c.checkpoint_every = 185
    c.data.eval_batches = 16
    c.data.eval_sequence_length = 128
    return c
