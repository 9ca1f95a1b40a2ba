"""RoFormer: BERT with rotary positions of neighbouring coordinates, and no pooler."""

from bert_jax.families.base import Family, keys_with

ROFORMER_FAMILY = Family(
    classes="RoFormer",
    fixed={"position_embedding_type": "rotary", "rotary_interleaved": True, "pooler": False,
           "classifier_summary": "hidden_act", "choice_summary": "hidden_act", "drop_before_summary": True},
    sizes={"small": (6, 384, 6, 1536)},
    keys=keys_with("embedding_size", "rotary_value", without=("classifier_dropout",)),
    defaults={"vocab_size": 50000, "hidden_act": "gelu", "max_position_embeddings": 1536},
)  # fmt: skip
