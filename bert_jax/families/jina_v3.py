"""Jina Embeddings v3 (Sturua et al. 2024, arXiv:2409.10173): XLM-R with rotary positions, and an adapter for each task.

The authors' `config.json` has XLM-R's model_type. The adapters are merged when a directory is opened.
"""

from bert_jax.families.base import Family, Json, keys_with, number, rope_base
from bert_jax.families.roberta import ROBERTA_HEADS

# Keys of the adapters of tasks in the authors' files.
TASK_KEYS = ("lora_adaptations", "lora_alpha", "task_instructions")


def _read_jina_v3(hf: Json) -> Json:
    base = number({"rotary_emb_base": 20_000.0} | hf, "rotary_emb_base")
    return {"rope_theta": rope_base(hf, ("rope_parameters",), base)}


JINA_V3_FAMILY = Family(
    classes="JinaEmbeddingsV3",
    other_model_types=("xlm-roberta",),
    shows=lambda hf: hf.get("position_embedding_type") == "rotary",
    has_own_code=True,
    has_task_adapters=True,
    not_carried=("rotary_emb_base", "position_embedding_type", *TASK_KEYS),
    fixed=ROBERTA_HEADS | {"position_embedding_type": "rotary"},
    keys=keys_with(),
    defaults={"vocab_size": 250002, "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16,
              "intermediate_size": 4096, "max_position_embeddings": 8194, "type_vocab_size": 1, "layer_norm_eps": 1e-5,
              "pad_token_id": 1},
    reads=_read_jina_v3,
    writes=lambda fields: {"rope_parameters": {"rope_type": "default", "rope_theta": fields["rope_theta"]}},
)  # fmt: skip
