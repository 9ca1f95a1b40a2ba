"""MPNet's tensor names (Song et al. 2020, arXiv:2004.09297)."""

from bert_jax.conversion.names import bert, roberta
from bert_jax.conversion.names.bert import LAYERS
from bert_jax.conversion.names.table import Names, architectures, classifiers, dense, embedding, embeddings, norm

_LAYER = "mpnet.encoder.layer.{layer}"

NAMES = Names(
    prefix="mpnet.",
    encoder=(
        *embeddings("mpnet."),
        embedding("mpnet.encoder.relative_attention_bias", "encoder/relative_attention_bias"),
        *dense(f"{_LAYER}.attention.attn.q", f"{LAYERS}/attention/query"),
        *dense(f"{_LAYER}.attention.attn.k", f"{LAYERS}/attention/key"),
        *dense(f"{_LAYER}.attention.attn.v", f"{LAYERS}/attention/value"),
        *dense(f"{_LAYER}.attention.attn.o", f"{LAYERS}/attention/output"),
        *norm(f"{_LAYER}.attention.LayerNorm", f"{LAYERS}/attention/layer_norm"),
        *bert.feed_forward(_LAYER),
        *dense("mpnet.pooler.dense", "pooler/dense"),
    ),
    heads=classifiers(masked_lm=roberta.MASKED_LM, sequence_classification=roberta.CLASSIFIER),
    architectures=architectures("MPNet"),
    tied=roberta.tied("mpnet."),
)
