"""Attention of kinds that BERT does not have: disentangled, with global tokens, block-sparse."""

import dataclasses
from typing import Any

from bert_jax.config.attention import AttentionConfig
from bert_jax.config.values import POS_ATT_TYPES
from bert_jax.errors import InputError, printable


@dataclasses.dataclass(frozen=True)
class DisentangledConfig(AttentionConfig):
    """Disentangled attention (He et al. 2020, arXiv:2006.03654, section 3.1).

    Attributes:
        pos_att_type: its terms: `c2p` (content to position), `p2c` (position to content), or both; () = plain
            attention.
        position_buckets: buckets of the distances on either side, the farther ones on a log scale; 0 = each distance
            has an embedding.
        max_relative_positions: the distance from which on all are alike; 0 = max_position_embeddings.
        share_att_key: whether positions are projected by the layers for queries and keys.
        norm_rel_ebd: whether the embeddings of relative positions pass through a LayerNorm.
        conv_kernel_size: width of a convolution over the embeddings that is added to the output of the first layer; 0 =
            none.
        conv_act: activation of this convolution.
    """

    pos_att_type: tuple[str, ...] = ()
    position_buckets: int = 0
    max_relative_positions: int = 0
    share_att_key: bool = False
    norm_rel_ebd: bool = False
    conv_kernel_size: int = 0
    conv_act: str = "tanh"

    def builds(self) -> str:
        return "bert_jax.modeling.disentangled.DisentangledAttention" if self.pos_att_type else super().builds()

    def beside(self) -> tuple[str, ...]:
        parts = {"Disentangled": self.pos_att_type, "Convolving": self.conv_kernel_size}
        return tuple(f"bert_jax.modeling.disentangled.{name}" for name, used in parts.items() if used)

    @property
    def name(self) -> str:
        return "pos_att_type" if self.pos_att_type else ""

    def relative_span(self, positions: int) -> int:
        return self.position_buckets or self.max_relative_positions or positions

    def check(self, config: Any) -> None:
        super().check(config)
        types, width = self.pos_att_type, self.conv_kernel_size
        if width and width % 2 == 0:
            raise InputError(f"model config: conv_kernel_size: expected 0 or an odd number, found {width}")
        for kind in types:
            if kind not in POS_ATT_TYPES:
                expected = f"{' or '.join(POS_ATT_TYPES)}, or both"
                raise InputError(f"model config: pos_att_type: expected {expected}, found {printable(repr(kind), 60)}")
        if len(set(types)) < len(types):
            raise InputError(f"model config: pos_att_type: expected each term once, found {'|'.join(types)}")
        positions = config.max_position_embeddings
        exact, longest = self.position_buckets // 2, self.max_relative_positions or positions
        if self.position_buckets == 1:
            raise InputError("model config: position_buckets: expected 0 or at least 2, found 1")
        if types and exact and positions - 1 > exact >= longest - 1:
            raise InputError(
                f"model config: max_relative_positions: expected more than {exact + 1} with position_buckets "
                f"{self.position_buckets}, found {longest}"
            )


@dataclasses.dataclass(frozen=True)
class GlobalTokensConfig(AttentionConfig):
    """Tokens with global attention, which has projections of its own (Beltagy et al. 2020, arXiv:2004.05150).

    Attributes:
        max_global_tokens: most tokens of a sequence with global attention.
        sep_token_id: id of the separator, by which the question is found.
    """

    max_global_tokens: int = 128
    sep_token_id: int | None = None

    def builds(self) -> str:
        return "bert_jax.modeling.global_attention.GlobalAttention" if self.max_global_tokens else super().builds()

    @property
    def name(self) -> str:
        return "max_global_tokens" if self.max_global_tokens else ""


@dataclasses.dataclass(frozen=True)
class BlockSparseConfig(AttentionConfig):
    """Block-sparse attention in long sequences (Zaheer et al. 2020, arXiv:2007.14062, section 2).

    Attributes:
        attention_type: `block_sparse` in sequences longer than `longest_full`, or `original_full`.
        block_size: tokens in a block.
        num_random_blocks: number of random blocks to which each block attends.
        sep_token_id: id of the separator, by which the question is found.
    """

    attention_type: str = "block_sparse"
    block_size: int = 64
    num_random_blocks: int = 3
    sep_token_id: int | None = None

    def builds(self) -> str:
        sparse = self.longest_full is not None
        return "bert_jax.modeling.block_sparse.BlockSparseAttention" if sparse else super().builds()

    def beside(self) -> tuple[str, ...]:
        has_random = self.longest_full is not None and self.num_random_blocks
        return ("bert_jax.modeling.block_sparse.RandomBlocks",) if has_random else ()

    @property
    def name(self) -> str:
        return "" if self.longest_full is None else "attention_type block_sparse"

    @property
    def longest_full(self) -> int | None:
        return (5 + 2 * self.num_random_blocks) * self.block_size if self.attention_type == "block_sparse" else None
