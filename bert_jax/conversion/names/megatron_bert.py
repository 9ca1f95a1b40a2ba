"""Tensor names of Megatron-BERT (Shoeybi et al. 2019, arXiv:1909.08053): BERT's, with LayerNorms before the blocks."""

from bert_jax.conversion.names import bert
from bert_jax.conversion.names.table import norm

NAMES = bert.with_bert_heads(
    "MegatronBert",
    "bert.",
    (*bert.encoder("bert.", "attention.ln", "ln"), *norm("bert.encoder.ln", "encoder/layer_norm")),
    "ForCausalLM",
)
