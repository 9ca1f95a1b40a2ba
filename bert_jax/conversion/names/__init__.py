"""The tables of tensor names, one per family: Hugging Face name -> path in the canonical parameter tree."""

from bert_jax.conversion.names import (
    albert,
    bert,
    big_bird,
    deberta,
    distilbert,
    electra,
    ernie,
    gte,
    jina_bert,
    jina_v3,
    longformer,
    megatron_bert,
    modernbert,
    mpnet,
    nomic_bert,
    nomic_moe,
    roberta,
)
from bert_jax.conversion.names.table import PLACEHOLDERS, Names, Slot, numbers_of, slots

__all__ = ["NAME_TABLES", "PLACEHOLDERS", "Names", "Slot", "numbers_of", "slots"]

NAME_TABLES: dict[str, Names] = {
    "bert": bert.NAMES,
    "distilbert": distilbert.NAMES,
    "roberta": roberta.NAMES,
    "xlm-roberta": roberta.XLM_NAMES,
    "camembert": roberta.CAMEMBERT_NAMES,
    "data2vec-text": roberta.DATA2VEC_NAMES,
    "roberta-prelayernorm": roberta.PRE_LAYER_NORM_NAMES,
    "xlm-roberta-xl": roberta.XLM_XL_NAMES,
    "ernie": ernie.NAMES,
    "megatron-bert": megatron_bert.NAMES,
    "albert": albert.NAMES,
    "electra": electra.NAMES,
    "mpnet": mpnet.NAMES,
    "nomic_bert": nomic_bert.NAMES,
    "modernbert": modernbert.NAMES,
    "deberta": deberta.V1_NAMES,
    "deberta-v2": deberta.NAMES,
    "longformer": longformer.NAMES,
    "big_bird": big_bird.NAMES,
    "gte": gte.NAMES,
    "nomic-moe": nomic_moe.NAMES,
    "jina_embeddings_v3": jina_v3.NAMES,
    "jina-bert": jina_bert.NAMES,
    "jina-bert-qk": jina_bert.QK_NAMES,
}
