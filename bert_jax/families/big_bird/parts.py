"""The parts of BigBird: block-sparse attention, and a span head of its own."""

import dataclasses

from bert_jax.config.attention import AttentionConfig
from bert_jax.config.fields import setting
from bert_jax.config.heads import HeadsConfig
from bert_jax.config.scaled_embeddings import ScaledConfig as ScaledConfig

_MODULES = "bert_jax.families.big_bird.modules"
_WITH_UNREAD_POOLER = ("masked_lm", "sequence_classification", "token_classification")


@dataclasses.dataclass(frozen=True)
class BlockSparseConfig(AttentionConfig):
    """Block-sparse attention in long sequences (Zaheer et al. 2020, arXiv:2007.14062, section 2)."""

    attention_type: str = setting(
        "block_sparse", "attention of a BigBird in long rows", choices=("original_full", "block_sparse"), recipe=True
    )
    block_size: int = setting(64, "tokens in a block of a BigBird's block-sparse attention", least=1, recipe=True)
    num_random_blocks: int = setting(3, "random blocks to which each block of a BigBird attends", least=0, recipe=True)
    sep_token_id: int | None = setting(None, "id of the separator, which ends the question", least=0)
    qkv_bias: bool = setting(True, "whether queries, keys and values have biases, if attention_bias is true")

    def builds(self) -> str:
        sparse = self.longest_full is not None
        return f"{_MODULES}.BlockSparseAttention" if sparse else super().builds()

    def beside(self) -> tuple[str, ...]:
        has_random = self.longest_full is not None and self.num_random_blocks
        return (f"{_MODULES}.RandomBlocks",) if has_random else ()

    @property
    def name(self) -> str:
        return "" if self.longest_full is None else "attention_type block_sparse"

    @property
    def longest_full(self) -> int | None:
        return (5 + 2 * self.num_random_blocks) * self.block_size if self.attention_type == "block_sparse" else None

    @property
    def sparse(self) -> bool:
        return self.longest_full is not None

    @property
    def has_bias(self) -> tuple[bool, bool]:
        return (self.attention_bias and self.qkv_bias,) * 2


@dataclasses.dataclass(frozen=True)
class BigBirdHeadsConfig(HeadsConfig):
    """BigBird's heads, with a span head of its own."""

    unread_pooler: bool = setting(True, "whether masked LM and classifiers have a pooler that they do not read")
    span_head: str = setting("feed_forward", "dense = a dense layer; feed_forward = a feed-forward block before "
                             "it, and no answers in the question", choices=("dense", "feed_forward"))  # fmt: skip

    def head(self, name: str) -> str:
        after_question = name == "question_answering" and self.span_head == "feed_forward"
        return "bert_jax.families.big_bird.span_head.SpanAfterQuestionHead" if after_question else super().head(name)

    def has_unread_pooler(self, head: str) -> bool:
        return self.unread_pooler and head in _WITH_UNREAD_POOLER
