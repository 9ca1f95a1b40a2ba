"""Jina Embeddings v3 (Sturua et al. 2024, arXiv:2409.10173): XLM-R with rotary positions, and an adapter for each task.

The authors' `config.json` has XLM-R's model_type. A task's adapter is merged when a model directory is opened.
"""

from bert_jax.config.positions import RotaryConfig
from bert_jax.families.base import TANH_SUMMARY, Family, Json, keys_with, number, rope_base
from bert_jax.families.names import (
    CLASSIFICATION_HEAD,
    LAYERS_PATH,
    LM_HEAD,
    NamedTensors,
    Names,
    architectures,
    classifiers,
    dense,
    projected_layers,
    rename_tensors,
    split_tensors,
    tied_lm_head,
)
from bert_jax.model_files.keys import FileKey, honoured, refused

_KEYS: tuple[FileKey, ...] = (
    honoured("rope_parameters", "base of rotary positions; scaled ones are refused"),
    # Keys of the authors' files, whose model_type is that of XLM-R.
    honoured("rotary_emb_base", "base of rotary positions"),
    honoured("lora_adaptations", "names of the tasks that have an adapter in the weights"),
    honoured("lora_alpha", "scale of the adapters multiplied by their rank"),
    honoured("task_instructions", "prompts of the tasks, if sentence-transformers' files have none"),
    honoured("truncate_dim", "number of leading dimensions of a vector that are kept"),
    refused("position_embedding_type", "with other position embeddings the model is an XLM-R", "rotary"),
    refused("use_reg_tokens", "further tokens before a text are not supported", False),
)

_LAYER = "roberta.layers.{layer}"
_ORIGINAL = (
    (r"(^|\.)emb_ln\.", r"\1embeddings.LayerNorm."),
    (r"(^|\.)encoder\.layers\.", r"\1layers."),
    (r"\.mixer\.out_proj\.", ".self_attn.o_proj."),
    (r"\.norm1\.", ".post_attention_layernorm."),
    (r"\.norm2\.", ".post_mlp_layernorm."),
)


def _older(tensors: NamedTensors) -> NamedTensors:
    parts = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    return split_tensors(rename_tensors(tensors, _ORIGINAL), "mixer.Wqkv", parts)


_NAMES = Names(
    prefix="roberta.",
    encoder=projected_layers(
        "roberta.",
        *dense(f"{_LAYER}.mlp.fc1", f"{LAYERS_PATH}/mlp/up"),
        *dense(f"{_LAYER}.mlp.fc2", f"{LAYERS_PATH}/mlp/down"),
    ),
    heads={
        head: entries
        for head, entries in classifiers(masked_lm=LM_HEAD, sequence_classification=CLASSIFICATION_HEAD).items()
        if head != "multiple_choice"
    },
    architectures=architectures("JinaEmbeddingsV3", without=("multiple_choice",)),
    # Classes of the authors' code.
    other_architectures={
        "XLMRobertaModel": "encoder",
        "XLMRobertaLoRA": "encoder",
        "XLMRobertaForMaskedLM": "masked_lm",
        "XLMRobertaForSequenceClassification": "sequence_classification",
    },
    tied=tied_lm_head("roberta."),
    older=_older,
)

# Keys of the task adapters in the authors' files.
TASK_KEYS = ("lora_adaptations", "lora_alpha", "task_instructions")


def _read_jina_v3(hf: Json) -> Json:
    base = number({"rotary_emb_base": 20_000.0} | hf, "rotary_emb_base")
    return {"rope_theta": rope_base(hf, ("rope_parameters",), base)}


JINA_V3_FAMILY = Family(
    name="jina_embeddings_v3",
    title="Jina Embeddings v3",
    file_keys=_KEYS,
    names=_NAMES,
    sign=r"(^|\.)layers\.\d+\.mixer\.Wqkv\.|(^|(?<!encoder)\.)layers\.\d+\.mlp\.fc1\.",
    classes="JinaEmbeddingsV3",
    other_model_types=("xlm-roberta",),
    shows=lambda hf: hf.get("position_embedding_type") == "rotary",
    has_own_code=True,
    has_task_adapters=True,
    not_carried=("rotary_emb_base", "position_embedding_type", *TASK_KEYS),
    fixed=TANH_SUMMARY | {"positions": RotaryConfig()},
    keys=keys_with(),
    defaults={"vocab_size": 250002, "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16,
              "intermediate_size": 4096, "max_position_embeddings": 8194, "type_vocab_size": 1, "layer_norm_eps": 1e-5,
              "pad_token_id": 1},
    reads=_read_jina_v3,
    writes=lambda fields: {"rope_parameters": {"rope_type": "default", "rope_theta": fields["rope_theta"]}},
)  # fmt: skip
