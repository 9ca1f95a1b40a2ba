"""Jina BERT (Günther et al. 2023, arXiv:2310.19923): ALiBi and gated feed-forward layers; two layouts of one line.

Both are named BERT in `config.json`. `auto_map` there, or the names of the tensors, tell them from BERT and each other.
"""

from bert_jax.errors import InputError
from bert_jax.families.base import Family, Json, keys_with, shown

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
        "gated": gated,
        "hidden_act": _ACTIVATIONS.get(kind, hf["hidden_act"]),
        "head_act": hf["hidden_act"],
        "mlp_up_bias": not gated,
        "mlp_dropout_at": "input" if gated else "output",
    }


def _write_jina(fields: Json) -> Json:
    kinds = {activation: kind for kind, activation in _ACTIVATIONS.items()}
    repository = _REPOSITORIES[fields["family"]]
    return {
        "position_embedding_type": "alibi",
        "feed_forward_type": kinds.get(fields["hidden_act"], "geglu") if fields["gated"] else "original",
        "hidden_act": fields["head_act"] or fields["hidden_act"],
        "auto_map": {"AutoConfig": f"{repository}--configuration_bert.JinaBertConfig"}
        | {name: f"{repository}--modeling_bert.JinaBert{kind}" for name, kind in _CLASSES.items()},
    }


def _names(hf: Json, family: str) -> bool:
    """Return whether the auto_map of a `config.json` names the repository of a family's code."""
    named = [hf.get("_name_or_path"), *(hf["auto_map"].values() if isinstance(hf.get("auto_map"), dict) else ())]
    return any(isinstance(name, str) and name.split("--")[0] == _REPOSITORIES[family] for name in named)


def _family(family: str, **more: object) -> Family:
    return Family(
        classes="JinaBert",
        model_type="bert",
        other_model_types=("bert",),
        shows=lambda hf: hf.get("position_embedding_type") == "alibi" and _names(hf, family),
        has_own_code=True,
        fixed={"position_embedding_type": "alibi"} | more,
        sizes={"small": (4, 512, 8, 2048)},
        defaults={"max_position_embeddings": 8192},
        fresh={"feed_forward_type": "geglu", "hidden_act": "gelu"},
        keys=keys_with(),
        reads=_read_jina,
        writes=_write_jina,
    )


JINA_BERT_FAMILY = _family("jina-bert")
JINA_BERT_QK_FAMILY = _family(
    "jina-bert-qk", qk_norm=True, attention_output_norm=True, mlp_up_bias=False, mlp_dropout_at="input"
)
