"""ESM-1b and ESM-2, protein language models with pre-LayerNorm, and embeddings that are rescaled for mask tokens.

Rives et al. 2021, doi:10.1073/pnas.2016239118; Lin et al. 2023, doi:10.1126/science.ade2574.
"""

import re

from bert_jax.errors import InputError
from bert_jax.families import bert
from bert_jax.families.base import Family, Json, boolean, keys_with, shown, whole_number
from bert_jax.families.esm.parts import ContactsConfig, RescaledConfig
from bert_jax.families.names import (
    CLASSIFICATION_HEAD,
    LAYERS_PATH,
    LM_HEAD,
    Entry,
    NamedTensors,
    Names,
    architectures,
    classifiers,
    dense,
    embeddings,
    norm,
)
from bert_jax.model_files.keys import FileKey, harmless, honoured, refused

_KEYS: tuple[FileKey, ...] = (
    honoured("position_embedding_type", "absolute (ESM-1b) or rotary (ESM-2)"),
    honoured("emb_layer_norm_before", "whether the embeddings have a LayerNorm"),
    refused("is_folding_model", "ESMFold is not supported", False),
    refused("esmfold_config", "ESMFold is not supported", None),
    harmless("hidden_act", "written by the original code, but not used: always gelu"),
)

_LAYER = "esm.encoder.layer.{layer}"
_SPEEDS = r"(^|.*\.)encoder\.layer\.(\d+|\*)\.attention\.self\.(rotary_embeddings\.inv_freq)"


def _older(tensors: NamedTensors) -> NamedTensors:
    """Keep one copy of the inverse frequencies of rotary positions, that of the first layer.

    Files of transformers 4 have one in each layer, those of transformers 5 in a layer named `*`.
    """
    renamed = {}
    for name, tensor in tensors.items():
        if (match := re.fullmatch(_SPEEDS, name)) is None:
            renamed[name] = tensor
        elif match[2] in ("0", "*"):
            renamed[match[1] + match[3]] = tensor
    return renamed


_NAMES = Names(
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
        masked_lm=LM_HEAD,
        sequence_classification=CLASSIFICATION_HEAD,
    ),
    architectures=architectures("Esm", without=("question_answering", "multiple_choice")),
    tied=(("lm_head.decoder.weight", "esm.embeddings.word_embeddings.weight"),),
    older=_older,
)

_POSITIONS = ("absolute", "rotary")
_PADDING = 1  # id of <pad> in the vocabulary of every ESM


def _read_esm(hf: Json) -> Json:
    kind = hf["position_embedding_type"]
    if kind not in _POSITIONS:
        raise InputError(f"position_embedding_type: expected {' or '.join(_POSITIONS)}, found {shown(kind)}")
    drops = boolean(hf, "token_dropout")
    return {
        "stored_rotation": kind == "rotary",
        "embedding_norm": boolean(hf, "emb_layer_norm_before"),
        "token_dropout": drops,
        "mask_token_id": whole_number(hf, "mask_token_id") if drops or "mask_token_id" in hf else None,
    }


def _offset(hf: Json) -> int:
    """Return the number of rows of the position table before the first position; 0 without a table (rotary)."""
    return whole_number(hf, "pad_token_id") + 1 if hf.get("position_embedding_type") == "absolute" else 0


ESM_FAMILY = Family(
    name="esm",
    title="ESM",
    file_keys=_KEYS,
    names=_NAMES,
    tokenizer_class="EsmTokenizer",
    token_types=False,
    sign=r"(^|\.)emb_layer_norm_after\.",
    classes="Esm",
    fixed={"norm_placement": "pre", "type_vocab_size": 0, "hidden_act": "gelu",
           "embeddings": RescaledConfig(),
           "heads": ContactsConfig(classifier_summary="tanh", drop_before_summary=True, head_act="gelu")},
    sizes={"8m": (6, 320, 20, 1280), "35m": (12, 480, 20, 1920), "150m": (30, 640, 20, 2560),
           "650m": (33, 1280, 20, 5120), "3b": (36, 2560, 40, 10240)},
    keys=keys_with("position_embedding_type", "rope_theta", "token_dropout", "mask_token_id",
                   without=("type_vocab_size", "classifier_dropout"), embedding_norm="emb_layer_norm_before"),
    required=("num_attention_heads",),
    defaults={"vocab_size": 33, "position_embedding_type": "absolute", "token_dropout": False,
              "emb_layer_norm_before": False, "pad_token_id": _PADDING, "max_position_embeddings": 1026},
    fresh={"position_embedding_type": "rotary", "token_dropout": True, "mask_token_id": 32, "layer_norm_eps": 1e-5,
           "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
    reads=_read_esm,
    writes=lambda fields: {"emb_layer_norm_before": fields["embedding_norm"]},
    position_offset=_offset,
)  # fmt: skip
