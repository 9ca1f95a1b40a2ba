"""The tables of tensor names, one per family: Hugging Face name -> path in the canonical parameter tree."""

from bert_jax.conversion.names import bert, deberta, distilbert, electra, modernbert, mpnet, nomic_bert, roberta
from bert_jax.conversion.names.table import Names, Slot, slots

__all__ = ["FAMILIES", "Names", "Slot", "slots"]

NAME_TABLES: dict[str, Names] = {
    "bert": bert.NAMES,
    "distilbert": distilbert.NAMES,
    "roberta": roberta.NAMES,
    "xlm-roberta": roberta.XLM_NAMES,
    "electra": electra.NAMES,
    "mpnet": mpnet.NAMES,
    "nomic_bert": nomic_bert.NAMES,
    "modernbert": modernbert.NAMES,
    "deberta-v2": deberta.NAMES,
}
