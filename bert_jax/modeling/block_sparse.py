"""Block-sparse attention (Zaheer et al. 2020, arXiv:2007.14062, section 2)."""

import dataclasses
from typing import Any

import jax
import numpy as np

from bert_jax.config import BertConfig
from bert_jax.modeling.attention import DropoutKeys, SelfAttention
from bert_jax.modeling.attention_plan import BLOCK_SPARSE, AttentionPlan
from bert_jax.modeling.backends import merge_heads, split_heads
from bert_jax.modeling.compute import Compute
from bert_jax.modeling.kernels.block_sparse import block_sparse_attention, dense_bias, random_blocks
from bert_jax.modeling.stack import Beside


class BlockSparseAttention(SelfAttention):
    """Attention of blocks to neighbouring, outer and random blocks, where the plan has a pattern of blocks.

    Its probabilities have no dropout, as in transformers.
    """

    def attend(
        self, x: jax.Array, plan: AttentionPlan, projected: tuple[jax.Array, ...], dropout_keys: DropoutKeys,
        compute: Compute,
    ) -> tuple[jax.Array, jax.Array | None]:  # fmt: skip
        blocks = plan.blocks
        if blocks is None:
            return super().attend(x, plan, projected, dropout_keys, compute)
        if plan.backend != BLOCK_SPARSE:
            plan = plan.with_bias(dense_bias(blocks, projected[1].shape[1], plan.query_positions))
            return super().attend(x, plan, projected, (None, dropout_keys[1]), compute)
        query, key, value = (x.swapaxes(1, 2) for x in split_heads(plan, projected, self.config))
        return merge_heads(block_sparse_attention(blocks, plan.mask, query, key, value, compute)), None


@dataclasses.dataclass(frozen=True)
class RandomBlocks(Beside):
    """The blocks, others in each layer, that a block also sees in training, `[L, N, C - 2, R]`."""

    def of_layers(self, config: BertConfig, plan: AttentionPlan, length: int, training: bool) -> np.ndarray | None:
        blocks = plan.blocks
        if blocks is None or not blocks.num_random or not training:
            return None
        heads, longest = config.num_attention_heads, config.max_position_embeddings
        return random_blocks(config.num_hidden_layers, heads, length, blocks.size, blocks.num_random, longest)

    def plan_of_layer(self, plan: AttentionPlan, row: Any) -> AttentionPlan:
        assert plan.blocks is not None
        return dataclasses.replace(plan, blocks=dataclasses.replace(plan.blocks, random=row))
