"""Jina BERT (Günther et al. 2023, arXiv:2310.19923): ALiBi and gated feed-forward layers, in two layouts.

Both have the model_type of BERT. `auto_map` in `config.json`, or the tensor names, tell them from BERT and each other.
"""

import dataclasses
from collections.abc import Callable

from bert_jax.config.layers import FeedForwardConfig, GatedConfig
from bert_jax.config.positions import AlibiConfig
from bert_jax.errors import InputError
from bert_jax.families import bert
from bert_jax.families.base import Family, Json, keys_with, shown
from bert_jax.families.names import LAYERS_PATH, Entry, Names, dense, dense_parts, norm
from bert_jax.model_files.keys import FileKey, honoured, refused

_KEYS: tuple[FileKey, ...] = (
    honoured("auto_map", "repository of the authors' code, which tells the two layouts apart; the code is never run"),
    honoured("feed_forward_type", "geglu, reglu: layers gated by gelu or relu; original: layers as in BERT"),
    refused("position_embedding_type", "with other position embeddings the model is a BERT", "alibi"),
)

_LAYER = "bert.encoder.layer.{layer}"
_ATTENTION, _MLP = f"{LAYERS_PATH}/attention", f"{LAYERS_PATH}/mlp"
_PLAIN = bert.encoder("bert.")
# Entries of BERT that both layouts have, with any feed-forward block.
_SHARED = tuple(entry for entry in _PLAIN if not entry.ours.startswith((f"{_MLP}/", f"{_ATTENTION}/layer_norm/")))
_ATTENTION_NORM = norm(f"{_LAYER}.attention.output.LayerNorm", f"{_ATTENTION}/layer_norm")


def _names(*entries: Entry) -> Names:
    return bert.with_bert_heads("JinaBert", "bert.", (*_SHARED, *entries), "LMHeadModel")


_NAMES = dataclasses.replace(
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
_QK_NAMES = dataclasses.replace(
    _names(*_QK_NORMS, *dense_parts(f"{_LAYER}.mlp.up_gated_layer", f"{_MLP}/up", f"{_MLP}/gate")),
    not_gated=_names(*_QK_NORMS, *dense(f"{_LAYER}.mlp.up_layer", f"{_MLP}/up")),
)

_ACTIVATIONS = {"geglu": "gelu", "reglu": "relu"}  # feed_forward_type -> activation of the gate
_FEED_FORWARD = (*_ACTIVATIONS, "original")
_REPOSITORIES = {"jina-bert": "jinaai/jina-bert-implementation", "jina-bert-qk": "jinaai/jina-bert-v2-qk-post-norm"}
_CLASSES = {
    "AutoModel": "Model", "AutoModelForMaskedLM": "ForMaskedLM",
    "AutoModelForSequenceClassification": "ForSequenceClassification",
    "AutoModelForTokenClassification": "ForTokenClassification",
    "AutoModelForQuestionAnswering": "ForQuestionAnswering",
}  # fmt: skip


def _read_jina(hf: Json) -> Json:
    kind = hf.get("feed_forward_type")
    if kind not in _FEED_FORWARD:
        raise InputError(f"feed_forward_type: expected one of {', '.join(_FEED_FORWARD)}, found {shown(kind)}")
    gated = kind in _ACTIVATIONS
    return {
        "feed_forward": GatedConfig() if gated else FeedForwardConfig(),
        "hidden_act": _ACTIVATIONS.get(kind, hf["hidden_act"]),
        "head_act": hf["hidden_act"],
    }


def _read_first_layout(hf: Json) -> Json:
    ours = _read_jina(hf)
    gated = ours["feed_forward"].gated
    return ours | {"mlp_up_bias": not gated, "mlp_dropout_at": "input" if gated else "output"}


def _write_jina(fields: Json) -> Json:
    kinds = {activation: kind for kind, activation in _ACTIVATIONS.items()}
    repository = _REPOSITORIES[fields["family"]]
    return {
        "position_embedding_type": "alibi",
        "feed_forward_type": kinds.get(fields["hidden_act"], "geglu") if fields["feed_forward"].gated else "original",
        "hidden_act": fields["head_act"] or fields["hidden_act"],
        "auto_map": {"AutoConfig": f"{repository}--configuration_bert.JinaBertConfig"}
        | {name: f"{repository}--modeling_bert.JinaBert{kind}" for name, kind in _CLASSES.items()},
    }


def _is_named(hf: Json, family: str) -> bool:
    """Return whether the auto_map of a `config.json` names the repository of a family's code."""
    named = [hf.get("_name_or_path"), *(hf["auto_map"].values() if isinstance(hf.get("auto_map"), dict) else ())]
    return any(isinstance(name, str) and name.split("--")[0] == _REPOSITORIES[family] for name in named)


def _family(family: str, names: Names, sign: str, reads: Callable[[Json], Json], **more: object) -> Family:
    return Family(
        name=family,
        title="Jina BERT",
        file_keys=_KEYS,
        names=names,
        sign=sign,
        classes="JinaBert",
        model_type="bert",
        other_model_types=("bert",),
        shows=lambda hf: hf.get("position_embedding_type") == "alibi" and _is_named(hf, family),
        has_own_code=True,
        fixed={"positions": AlibiConfig()} | more,
        sizes={"small": (4, 512, 8, 2048)},
        defaults={"max_position_embeddings": 8192},
        fresh={"feed_forward_type": "geglu", "hidden_act": "gelu"},
        keys=keys_with(),
        reads=reads,
        writes=_write_jina,
    )


JINA_BERT_FAMILY = _family("jina-bert", _NAMES, r"(^|\.)layer\.\d+\.mlp\.gated_layers\.", _read_first_layout)
JINA_BERT_QK_FAMILY = _family(
    "jina-bert-qk",
    _QK_NAMES,
    r"(^|\.)layer\.\d+\.attention\.self\.layer_norm_q\.",
    _read_jina,
    qk_norm=True,
    attention_output_norm=True,
    mlp_up_bias=False,
    mlp_dropout_at="input",
)
