"""Megatron-BERT (Shoeybi et al. 2019, arXiv:1909.08053): BERT with LayerNorms before the blocks."""

from bert_jax.families import bert
from bert_jax.families.base import PRE_NORM, Family, keys_with
from bert_jax.families.names import norm

_NAMES = bert.with_bert_heads(
    "MegatronBert",
    "bert.",
    (*bert.encoder("bert.", "attention.ln", "ln"), *norm("bert.encoder.ln", "encoder/layer_norm")),
    "ForCausalLM",
)

MEGATRON_BERT_FAMILY = Family(
    name="megatron-bert",
    title="Megatron-BERT",
    names=_NAMES,
    tokenizer_class="BertTokenizer",
    sign=r"(^|\.)layer\.\d+\.attention\.ln\.",
    classes="MegatronBert",
    fixed=PRE_NORM,
    keys=keys_with(without=("classifier_dropout",)),
    defaults={"vocab_size": 29056},
)  # fmt: skip
