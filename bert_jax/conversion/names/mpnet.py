"""MPNet's tensor names (Song et al. 2020, arXiv:2004.09297)."""

from bert_jax.conversion.names import bert, roberta
from bert_jax.conversion.names.bert import LAYERS_PATH
from bert_jax.conversion.names.table import Names, architectures, classifiers, dense, embedding, embeddings, norm

_LAYER = "mpnet.encoder.layer.{layer}"

NAMES = Names(
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
    heads=classifiers(masked_lm=roberta.MASKED_LM, sequence_classification=roberta.CLASSIFIER),
    architectures=architectures("MPNet"),
    tied=roberta.tied_lm_head("mpnet."),
)
