"""ERNIE's tensor names (Sun et al. 2019, arXiv:1904.09223): BERT's with another prefix."""

from bert_jax.conversion.names import bert

NAMES = bert.with_bert_heads("Ernie", "ernie.", bert.encoder("ernie."), "ForCausalLM")
