"""ESM's tensor names (Rives et al. 2021, doi:10.1073/pnas.2016239118; Lin et al. 2023, doi:10.1126/science.ade2574)."""

import re

from bert_jax.conversion.names import bert, roberta
from bert_jax.conversion.names.bert import LAYERS_PATH
from bert_jax.conversion.names.table import (
    Entry,
    Names,
    Tensors,
    architectures,
    classifiers,
    dense,
    embedding,
    embeddings,
    norm,
)

_LAYER = "esm.encoder.layer.{layer}"
_SPEEDS = r"(^|.*\.)encoder\.layer\.(\d+|\*)\.attention\.self\.(rotary_embeddings\.inv_freq)"


def _older(tensors: Tensors) -> Tensors:
    """Take the speeds of rotary positions from the first layer: files of transformers 4 have them in each.

    Files of transformers 5 have them once, in a layer named `*`.
    """
    found = {}
    for name, tensor in tensors.items():
        if (match := re.fullmatch(_SPEEDS, name)) is None:
            found[name] = tensor
        elif match[2] in ("0", "*"):
            found[match[1] + match[3]] = tensor
    return found


NAMES = Names(
    prefix="esm.",
    encoder=(
        *embeddings("esm.", "layer_norm"),
        Entry("esm.rotary_embeddings.inv_freq", "encoder/inverse_frequencies"),
        *dense(f"{_LAYER}.attention.self.query", f"{LAYERS_PATH}/attention/query"),
        *dense(f"{_LAYER}.attention.self.key", f"{LAYERS_PATH}/attention/key"),
        *dense(f"{_LAYER}.attention.self.value", f"{LAYERS_PATH}/attention/value"),
        *dense(f"{_LAYER}.attention.output.dense", f"{LAYERS_PATH}/attention/output"),
        *norm(f"{_LAYER}.attention.LayerNorm", f"{LAYERS_PATH}/attention/layer_norm"),
        *bert.feed_forward(_LAYER, "LayerNorm"),
        *norm("esm.encoder.emb_layer_norm_after", "encoder/layer_norm"),
        *dense("esm.pooler.dense", "pooler/dense"),
        *dense("esm.contact_head.regression", "contact_head/dense"),
    ),
    heads=classifiers(
        masked_lm=(
            *dense("lm_head.dense", "mlm/dense"),
            *norm("lm_head.layer_norm", "mlm/layer_norm"),
            Entry("lm_head.bias", "mlm/bias"),
            embedding("lm_head.decoder", "mlm/decoder"),
        ),
        sequence_classification=roberta.CLASSIFIER,
    ),
    architectures=architectures("Esm", without=("question_answering", "multiple_choice")),
    tied=(("lm_head.decoder.weight", "esm.embeddings.word_embeddings.weight"),),
    older=_older,
)
