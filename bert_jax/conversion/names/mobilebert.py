"""MobileBERT's tensor names (Sun et al. 2020, arXiv:2004.02984)."""

from bert_jax.conversion.names import bert
from bert_jax.conversion.names.bert import LAYERS_PATH
from bert_jax.conversion.names.table import Entry, dense, norm

_PREFIX = "mobilebert."
_LAYER = "mobilebert.encoder.layer.{layer}"
_BLOCK, _BLOCK_PATH = f"{_LAYER}.ffn.{{block}}", f"{LAYERS_PATH}/ffn_{{block}}"
_BOTTLENECK = f"{LAYERS_PATH}/bottleneck"
_MASKED_LM = (
    *bert.masked_lm(),
    Entry("cls.predictions.dense.weight", "mlm/further_decoder/embedding", transpose=True),
)

NAMES = bert.with_bert_heads(
    "MobileBert",
    _PREFIX,
    (
        *bert.encoder(_PREFIX),
        *dense(f"{_PREFIX}embeddings.embedding_transformation", "embeddings/projection"),
        *dense(f"{_BLOCK}.intermediate.dense", f"{_BLOCK_PATH}/up"),
        *dense(f"{_BLOCK}.output.dense", f"{_BLOCK_PATH}/down"),
        *norm(f"{_BLOCK}.output.LayerNorm", f"{_BLOCK_PATH}/layer_norm"),
        *dense(f"{_LAYER}.bottleneck.input.dense", f"{_BOTTLENECK}/input"),
        *norm(f"{_LAYER}.bottleneck.input.LayerNorm", f"{_BOTTLENECK}/input_norm"),
        *dense(f"{_LAYER}.bottleneck.attention.dense", f"{_BOTTLENECK}/query_key"),
        *norm(f"{_LAYER}.bottleneck.attention.LayerNorm", f"{_BOTTLENECK}/query_key_norm"),
        *dense(f"{_LAYER}.output.bottleneck.dense", f"{_BOTTLENECK}/output"),
        *norm(f"{_LAYER}.output.bottleneck.LayerNorm", f"{_BOTTLENECK}/output_norm"),
    ),
    "",
    _MASKED_LM,
)
