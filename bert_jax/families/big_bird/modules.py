"""Block-sparse attention (Zaheer et al. 2020, arXiv:2007.14062, section 2)."""

import dataclasses
from typing import Any

import jax
import numpy as np

from bert_jax.config import BertConfig
from bert_jax.config.part import expect
from bert_jax.errors import InputError
from bert_jax.families.big_bird.kernel import BlockPattern, block_sparse_attention, dense_bias, random_blocks
from bert_jax.families.big_bird.parts import BlockSparseConfig
from bert_jax.modeling.attention import DropoutKeys, SelfAttention
from bert_jax.modeling.attention_mask import AttentionMask
from bert_jax.modeling.attention_plan import AttentionPlan
from bert_jax.modeling.backends import merge_heads, split_heads
from bert_jax.modeling.compute import Compute
from bert_jax.modeling.stack import Beside

BLOCK_SPARSE = "block_sparse"  # the backend that replaces xla for long sequences


class BlockSparseAttention(SelfAttention):
    """Block-sparse attention if the plan has a `BlockPattern`, else attention to all tokens.

    As in transformers, block-sparse attention has no dropout of probabilities.
    """

    @staticmethod
    def unfit(backend: str, config: BertConfig, mask: AttentionMask, length: int) -> str | None:
        return None if _pattern(mask, config, length) is None else "does not support block-sparse attention"

    @staticmethod
    def planned(plan: AttentionPlan, config: BertConfig, length: int, maps: bool) -> AttentionPlan:
        blocks = _pattern(plan.mask, config, length)
        if blocks is None or maps:
            return dataclasses.replace(plan, extra=blocks)
        return dataclasses.replace(plan, backend=BLOCK_SPARSE, extra=blocks)

    def attend(
        self, x: jax.Array, plan: AttentionPlan, projected: tuple[jax.Array, ...], dropout_keys: DropoutKeys,
        compute: Compute,
    ) -> tuple[jax.Array, jax.Array | None]:  # fmt: skip
        blocks: BlockPattern | None = plan.extra
        if blocks is None:
            return super().attend(x, plan, projected, dropout_keys, compute)
        if plan.backend != BLOCK_SPARSE:
            plan = plan.with_bias(dense_bias(blocks, projected[1].shape[1], plan.query_positions))
            return super().attend(x, plan, projected, (None, dropout_keys[1]), compute)
        query, key, value = (x.swapaxes(1, 2) for x in split_heads(projected, self.config))
        return merge_heads(block_sparse_attention(blocks, plan.mask, query, key, value, compute)), None


def _pattern(mask: AttentionMask, config: BertConfig, length: int) -> BlockPattern | None:
    """Return the pattern of block-sparse attention without random blocks; None if attention is to all tokens."""
    part = expect(config.attention, BlockSparseConfig)
    if part.longest_full is None or config.max_position_embeddings <= part.longest_full:
        return None
    if not isinstance(length, int):  # a symbolic length (`jax.export`)
        raise InputError(
            "attention_type: expected original_full to export a model for any sequence length, found block_sparse; "
            f"up to {part.longest_full} tokens both compute the same"
        )
    if length <= part.longest_full:
        return None
    if mask.query_ids is not None:
        raise InputError("attention_type: expected original_full for packed rows, found block_sparse")
    return BlockPattern(part.block_size, part.num_random_blocks)


@dataclasses.dataclass(frozen=True)
class RandomBlocks(Beside):
    """The random blocks that blocks attend to in training, different in each layer, `[L, N, C - 2, R]`."""

    def of_layers(self, config: BertConfig, plan: AttentionPlan, length: int, training: bool) -> np.ndarray | None:
        blocks = plan.extra
        if blocks is None or not blocks.num_random or not training:
            return None
        heads, longest = config.num_attention_heads, config.max_position_embeddings
        return random_blocks(config.num_hidden_layers, heads, length, blocks.size, blocks.num_random, longest)

    def plan_of_layer(self, plan: AttentionPlan, row: Any) -> AttentionPlan:
        return dataclasses.replace(plan, extra=dataclasses.replace(plan.extra, random=row))
