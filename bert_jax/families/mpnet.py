"""MPNet: RoBERTa's heads, and a bias of attention scores for relative positions."""

from bert_jax.families.base import Family, keys_with
from bert_jax.families.roberta import ROBERTA_FAMILY, ROBERTA_HEADS

MPNET_FAMILY = Family(
    classes="MPNet",
    required=ROBERTA_FAMILY.required,
    assumed=ROBERTA_FAMILY.assumed,
    fixed=ROBERTA_HEADS | {"type_vocab_size": 0, "relative_attention_buckets": 32},
    keys=keys_with(without=("type_vocab_size", "classifier_dropout")),
    defaults={"vocab_size": 30527, "pad_token_id": 1, "max_position_embeddings": 514},
    position_offset=lambda hf: 2,  # whatever the padding's id is
)  # fmt: skip
