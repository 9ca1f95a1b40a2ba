"""MPNet (Song et al. 2020, arXiv:2004.09297): RoBERTa's heads, and a bias for relative positions."""

from bert_jax.families import bert
from bert_jax.families.base import TANH_SUMMARY, Family, keys_with
from bert_jax.families.mpnet.parts import RelativeBiasConfig
from bert_jax.families.names import (
    CLASSIFICATION_HEAD,
    LAYERS_PATH,
    LM_HEAD,
    Names,
    architectures,
    classifiers,
    dense,
    embedding,
    embeddings,
    norm,
    tied_lm_head,
)
from bert_jax.model_files.keys import FileKey, harmless, refused

_KEYS: tuple[FileKey, ...] = (
    refused("relative_attention_num_buckets", "other numbers of buckets are not supported", 32),
    harmless("type_vocab_size", "MPNet has no token types"),
)

_LAYER = "mpnet.encoder.layer.{layer}"

_NAMES = Names(
    prefix="mpnet.",
    encoder=(
        *embeddings("mpnet."),
        embedding("mpnet.encoder.relative_attention_bias", "encoder/relative_attention_bias"),
        *dense(f"{_LAYER}.attention.attn.q", f"{LAYERS_PATH}/attention/query"),
        *dense(f"{_LAYER}.attention.attn.k", f"{LAYERS_PATH}/attention/key"),
        *dense(f"{_LAYER}.attention.attn.v", f"{LAYERS_PATH}/attention/value"),
        *dense(f"{_LAYER}.attention.attn.o", f"{LAYERS_PATH}/attention/output"),
        *norm(f"{_LAYER}.attention.LayerNorm", f"{LAYERS_PATH}/attention/layer_norm"),
        *bert.feed_forward(_LAYER),
        *dense("mpnet.pooler.dense", "pooler/dense"),
    ),
    heads=classifiers(masked_lm=LM_HEAD, sequence_classification=CLASSIFICATION_HEAD),
    architectures=architectures("MPNet"),
    tied=tied_lm_head("mpnet."),
)

MPNET_FAMILY = Family(
    name="mpnet",
    title="MPNet",
    file_keys=_KEYS,
    names=_NAMES,
    tokenizer_class="MPNetTokenizer",
    token_types=False,
    sign=r"(^|\.)layer\.\d+\.attention\.attn\.",
    classes="MPNet",
    required=("num_attention_heads", "hidden_act", "layer_norm_eps"),
    assumed={"hidden_act": "gelu", "layer_norm_eps": 1e-12},
    fixed=TANH_SUMMARY | {"type_vocab_size": 0, "positions": RelativeBiasConfig()},
    keys=keys_with(without=("type_vocab_size", "classifier_dropout")),
    defaults={"vocab_size": 30527, "pad_token_id": 1, "max_position_embeddings": 514},
    position_offset=lambda hf: 2,  # fixed, whatever pad_token_id is
)  # fmt: skip
