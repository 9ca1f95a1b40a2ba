"""The plan for the attention of a layer, and the choice of its backend (docs/attention.md)."""

import dataclasses
from typing import TYPE_CHECKING

import jax

from bert_jax.config import BertConfig
from bert_jax.errors import InputError
from bert_jax.lazy import LazyModule
from bert_jax.modeling.attention_mask import AttentionMask
from bert_jax.modeling.compute import Compute
from bert_jax.modeling.positions import Positions

if TYPE_CHECKING:
    from bert_jax.modeling import accelerators
    from bert_jax.modeling.kernels import block_sparse, disentangled, local
else:  # most programs use none of them
    accelerators = LazyModule("bert_jax.modeling.accelerators")
    block_sparse = LazyModule("bert_jax.modeling.kernels.block_sparse")
    disentangled = LazyModule("bert_jax.modeling.kernels.disentangled")
    local = LazyModule("bert_jax.modeling.kernels.local")

_PLATFORMS = {"fused": "tpu", "splash": "tpu", "cudnn": "gpu"}
LOCAL = "local"  # replaces xla if the window is small relative to the length
BLOCKS = "blocks"  # replaces xla for disentangled attention of a long sequence
BLOCK_SPARSE = "block_sparse"  # replaces xla if attention is block-sparse


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class AttentionPlan:
    """The plan for the attention of a layer: backend, mask and positions.

    Attributes:
        backend: one of `bert_jax.modeling.compute.ATTENTIONS` except auto; or local, blocks or block_sparse.
        mask: the attention mask.
        bias: bias of the scores from `mask` and relative positions, shared by all such layers: for xla
            `[B or 1, N or 1, 1 or S, S]`, for local by blocks; None for the other backends.
        rotation: cosines and sines `[B or 1, S, 1, H / 2]` of rotary positions; None without rotary positions.
        relative_embeddings: embeddings `[R, D]` of relative positions for disentangled attention, or None.
        blocks: the pattern of block-sparse attention, or None.
        query_positions: the P query positions; None means all positions. With P positions, `bias` is
            `[B or 1, N or 1, 1 or P, S]`.
    """

    backend: str = dataclasses.field(metadata={"static": True})
    mask: AttentionMask
    bias: jax.Array | None
    rotation: tuple[jax.Array, jax.Array] | None = None
    relative_embeddings: jax.Array | None = None
    blocks: "block_sparse.BlockPattern | None" = None
    query_positions: Positions | None = None

    def only(self, positions: Positions) -> "AttentionPlan":
        """Return the plan for queries at `positions` only; its scores are few, so its backend is xla."""
        bias = self.mask.bias(positions.length, positions)
        return dataclasses.replace(self, backend="xla", bias=bias, query_positions=positions)

    def with_bias(self, bias: jax.Array) -> "AttentionPlan":
        """Return the plan with a further bias of the scores."""
        return dataclasses.replace(self, bias=bias if self.bias is None else bias + self.bias)


def plan_attention(
    mask: AttentionMask, config: BertConfig, compute: Compute, length: int, *, drops: bool, maps: bool
) -> AttentionPlan:
    """Choose the attention backend for sequences of `length`, with or without dropout and attention maps.

    Raises:
        InputError: `compute.attention` names a backend that does not support this.
    """
    drops = drops and config.attention_probs_dropout_prob > 0
    blocks = _blocks(mask, config, length)
    backend = compute.attention
    if maps:
        backend = "xla"
    elif backend == "auto":
        backend = _cheapest(config, compute, mask, length, drops)
    elif reason := _unfit(backend, config, compute, mask, length, drops):
        raise InputError(f"attention={backend}: {reason}; use auto or xla")
    is_local = mask.window is not None and not config.relative_positions
    if backend == "xla" and not maps and is_local and local.supports(length, mask.window):
        return AttentionPlan(LOCAL, mask, local.bias(mask, length))
    if backend == "xla" and not maps and config.attention.pos_att_type and disentangled.supports(length):
        return AttentionPlan(BLOCKS, mask, None)
    if blocks is not None and not maps:
        return AttentionPlan(BLOCK_SPARSE, mask, None, blocks=blocks)
    return AttentionPlan(backend, mask, mask.bias(length) if backend == "xla" else None, blocks=blocks)


def _blocks(mask: AttentionMask, config: BertConfig, length: int) -> "block_sparse.BlockPattern | None":
    """Return the pattern of block-sparse attention without random blocks; None if attention is to all tokens."""
    if config.attention.longest_full is None or config.max_position_embeddings <= config.attention.longest_full:
        return None
    if not isinstance(length, int):  # `jax.export`
        raise InputError("attention_type: expected original_full for a program of any length, found block_sparse")
    if length <= config.attention.longest_full:
        return None
    if mask.query_ids is not None:
        raise InputError("attention_type: expected original_full for packed rows, found block_sparse")
    return block_sparse.BlockPattern(config.attention.block_size, config.attention.num_random_blocks)


def _cheapest(config: BertConfig, compute: Compute, mask: AttentionMask, length: int, drops: bool) -> str:
    """Return the backend that moves the fewest bytes to and from memory (docs/attention.md)."""
    shortest = {"fused": 256, "splash": 512, "cudnn": 512}
    if mask.window is not None and local.supports(length, mask.window):
        # Only splash and local skip work outside of the window.
        shortest = {"splash": 512}
    for backend, least in shortest.items():
        if length >= least and not _unfit(backend, config, compute, mask, length, drops):
            return backend
    return "xla"


def _unfit(
    backend: str, config: BertConfig, compute: Compute, mask: AttentionMask, length: int, drops: bool
) -> str | None:
    """Return why a backend cannot be used, or None. The backend xla has no bounds, and its length may be symbolic."""
    if backend == "xla":
        return None
    platform = _PLATFORMS.get(backend, compute.target)
    if platform != compute.target:
        return f"needs a {platform}, found {compute.target}"
    if config.relative_positions and not (backend == "fused" and config.attention.pos_att_type):
        alibi = config.positions.kind == "alibi"
        return f"does not support {'positions of type alibi' if alibi else 'relative positions'}"
    if mask.global_tokens is not None or _blocks(mask, config, length) is not None:
        return "does not support tokens with global attention, nor block-sparse attention"
    if drops and backend != "fused":
        return (f"expected attention_probs_dropout_prob of 0, as this backend has no dropout, found "
                f"{config.attention_probs_dropout_prob}")  # fmt: skip
    return accelerators.unfit_sizes(backend, config, compute, length)
