"""Tensor names of Jina BERT (Günther et al. 2023, arXiv:2310.19923), in its two layouts."""

import dataclasses

from bert_jax.conversion.names import bert
from bert_jax.conversion.names.bert import LAYERS_PATH
from bert_jax.conversion.names.table import Entry, Names, dense, dense_parts, norm

_LAYER = "bert.encoder.layer.{layer}"
_ATTENTION, _MLP = f"{LAYERS_PATH}/attention", f"{LAYERS_PATH}/mlp"
_PLAIN = bert.encoder("bert.")
# Entries of BERT that are also in both layouts, whatever the feed-forward block.
_SHARED = tuple(entry for entry in _PLAIN if not entry.ours.startswith((f"{_MLP}/", f"{_ATTENTION}/layer_norm/")))
_ATTENTION_NORM = norm(f"{_LAYER}.attention.output.LayerNorm", f"{_ATTENTION}/layer_norm")


def _names(*entries: Entry) -> Names:
    return bert.with_bert_heads("JinaBert", "bert.", (*_SHARED, *entries), "LMHeadModel")


NAMES = dataclasses.replace(
    _names(
        *_ATTENTION_NORM,
        *dense_parts(f"{_LAYER}.mlp.gated_layers", f"{_MLP}/gate", f"{_MLP}/up"),
        *dense(f"{_LAYER}.mlp.wo", f"{_MLP}/down"),
        *norm(f"{_LAYER}.mlp.layernorm", f"{_MLP}/layer_norm"),
    ),
    not_gated=_names(*_ATTENTION_NORM, *bert.feed_forward(_LAYER)),
)
_QK_NORMS = (
    *norm(f"{_LAYER}.attention.self.layer_norm_q", f"{_ATTENTION}/query_norm"),
    *norm(f"{_LAYER}.attention.self.layer_norm_k", f"{_ATTENTION}/key_norm"),
    *norm(f"{_LAYER}.attention.output.LayerNorm", f"{_ATTENTION}/output_norm"),
    *norm(f"{_LAYER}.layer_norm_1", f"{_ATTENTION}/layer_norm"),
    *dense(f"{_LAYER}.mlp.down_layer", f"{_MLP}/down"),
    *norm(f"{_LAYER}.layer_norm_2", f"{_MLP}/layer_norm"),
)
QK_NAMES = dataclasses.replace(
    _names(*_QK_NORMS, *dense_parts(f"{_LAYER}.mlp.up_gated_layer", f"{_MLP}/up", f"{_MLP}/gate")),
    not_gated=_names(*_QK_NORMS, *dense(f"{_LAYER}.mlp.up_layer", f"{_MLP}/up")),
)
