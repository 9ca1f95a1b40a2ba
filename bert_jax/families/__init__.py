"""The families of encoders: the `BertConfig` switches of each, and the keys of its Hugging Face `config.json`.

A family is a choice of `BertConfig`'s switches. The encoder depends on the switches only, never on the family. The
tensor names of families are in `bert_jax.conversion.names`.
"""

import re
from typing import Any

from bert_jax.errors import InputError, did_you_mean
from bert_jax.families.base import Family, Json, shown
from bert_jax.families.bert import (
    ALBERT_FAMILY,
    BERT_FAMILY,
    DISTILBERT_FAMILY,
    ELECTRA_FAMILY,
    ERNIE_FAMILY,
    MEGATRON_BERT_FAMILY,
)
from bert_jax.families.big_bird import BIG_BIRD_FAMILY
from bert_jax.families.deberta import DEBERTA_FAMILY, DEBERTA_V2_FAMILY
from bert_jax.families.esm import ESM_FAMILY
from bert_jax.families.eurobert import EUROBERT_FAMILY
from bert_jax.families.gte import GTE_FAMILY
from bert_jax.families.jina_bert import JINA_BERT_FAMILY, JINA_BERT_QK_FAMILY
from bert_jax.families.jina_v3 import JINA_V3_FAMILY
from bert_jax.families.longformer import LONGFORMER_FAMILY
from bert_jax.families.mobilebert import MOBILEBERT_FAMILY
from bert_jax.families.modernbert import MODERNBERT_FAMILY
from bert_jax.families.mpnet import MPNET_FAMILY
from bert_jax.families.neobert import NEOBERT_FAMILY
from bert_jax.families.nomic_bert import NOMIC_BERT_FAMILY
from bert_jax.families.nomic_moe import NOMIC_MOE_FAMILY
from bert_jax.families.roberta import (
    CAMEMBERT_FAMILY,
    DATA2VEC_TEXT_FAMILY,
    ROBERTA_FAMILY,
    ROBERTA_PRELAYERNORM_FAMILY,
    XLM_ROBERTA_FAMILY,
    XLM_ROBERTA_XL_FAMILY,
)
from bert_jax.families.roformer import ROFORMER_FAMILY

FAMILIES: dict[str, Family] = {
    "bert": BERT_FAMILY,
    "distilbert": DISTILBERT_FAMILY,
    "roberta": ROBERTA_FAMILY,
    "xlm-roberta": XLM_ROBERTA_FAMILY,
    "camembert": CAMEMBERT_FAMILY,
    "data2vec-text": DATA2VEC_TEXT_FAMILY,
    "roberta-prelayernorm": ROBERTA_PRELAYERNORM_FAMILY,
    "xlm-roberta-xl": XLM_ROBERTA_XL_FAMILY,
    "ernie": ERNIE_FAMILY,
    "megatron-bert": MEGATRON_BERT_FAMILY,
    "albert": ALBERT_FAMILY,
    "mobilebert": MOBILEBERT_FAMILY,
    "electra": ELECTRA_FAMILY,
    "mpnet": MPNET_FAMILY,
    "nomic_bert": NOMIC_BERT_FAMILY,
    "modernbert": MODERNBERT_FAMILY,
    "deberta": DEBERTA_FAMILY,
    "deberta-v2": DEBERTA_V2_FAMILY,
    "eurobert": EUROBERT_FAMILY,
    "esm": ESM_FAMILY,
    "neobert": NEOBERT_FAMILY,
    "roformer": ROFORMER_FAMILY,
    "longformer": LONGFORMER_FAMILY,
    "big_bird": BIG_BIRD_FAMILY,
    "gte": GTE_FAMILY,
    "nomic-moe": NOMIC_MOE_FAMILY,
    "jina_embeddings_v3": JINA_V3_FAMILY,
    "jina-bert": JINA_BERT_FAMILY,
    "jina-bert-qk": JINA_BERT_QK_FAMILY,
}


def architectures_of(hf: Json, where: object) -> tuple[str, ...]:
    """Return the Hugging Face classes in a `config.json`. Raises InputError when they are no list of names."""
    classes = hf.get("architectures")
    if classes is None:
        return ()
    if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
        raise InputError(f"{where}: architectures: expected a list of class names, found {shown(classes)}")
    return tuple(
        re.sub("^(TF|Flax)(?=[A-Z])", "", name) for name in classes
    )  # BertModel, TFBertModel and FlaxBertModel are the same


def family_of(hf: Json, where: object = "config.json") -> str:
    """Return the family of a `config.json`, by model_type, or else by architectures.

    Raises:
        InputError: the family is not known or not given, or model_type and architectures contradict each other.
    """
    stated, classes = hf.get("model_type"), architectures_of(hf, where)
    found = None if stated is None else _of_model_type(stated, hf)
    if stated is not None and found is None:
        near = did_you_mean(str(stated), FAMILIES)
        raise InputError(f"{where}: model_type {shown(stated)} is not supported{near}")
    of_classes = [family for name in classes for family in FAMILIES if _is_class_of(name, family)]
    if stated is None and not of_classes:
        raise InputError(
            f"{where}: expected a model_type, found none, and architectures {shown(list(classes))} do not say it"
        )
    if found is None:
        return of_classes[0]
    # XLM-R is RoBERTa with another vocabulary.
    same = {"roberta", "xlm-roberta"} if found in ("roberta", "xlm-roberta") else {found}
    same |= set(FAMILIES[found].other_model_types)
    if of_classes and not same & set(of_classes):
        raise InputError(f"{where}: model_type is {stated!r}, but architectures are {shown(list(classes))}")
    return found


def _of_model_type(stated: Any, hf: Json) -> str | None:
    """Return the family of a model_type; None if no family has it."""
    if not isinstance(stated, str):
        return None
    others = (name for name, kind in FAMILIES.items() if stated in kind.other_model_types and kind.shows(hf))
    return next(others, stated if stated in FAMILIES else None)


def _is_class_of(name: str, family: str) -> bool:
    """Return whether a class, such as BertForMaskedLM, belongs to a family."""
    return re.fullmatch(f"{FAMILIES[family].classes}(Model|For[A-Z].*|LMHeadModel|LMHead|)", name) is not None
