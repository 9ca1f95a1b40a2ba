"""BigBird: BERT with block-sparse attention in long sequences, and heads of its own for sequences and spans."""

from bert_jax.families.base import Family, keys_with

BIG_BIRD_FAMILY = Family(
    classes="BigBird",
    fixed={"classifier_summary": "hidden_act", "drop_before_summary": True, "unread_pooler": True,
           "span_head": "feed_forward"},
    keys=keys_with(
        "attention_type", "block_size", "num_random_blocks", "rescale_embeddings", "sep_token_id", "qkv_bias",
        qkv_bias="use_bias",
    ),
    assumed={"hidden_act": "gelu_new"},
    defaults={"vocab_size": 50358, "hidden_act": "gelu_new", "max_position_embeddings": 4096, "sep_token_id": 66,
              "attention_type": "block_sparse", "block_size": 64, "num_random_blocks": 3},
)  # fmt: skip
