"""The plan for the attention of a layer, and the choice of its backend (docs/attention.md)."""

import dataclasses
from typing import TYPE_CHECKING, Any

import jax

from bert_jax.config import BertConfig
from bert_jax.errors import InputError
from bert_jax.lazy import LazyModule, import_object
from bert_jax.modeling.attention_mask import AttentionMask
from bert_jax.modeling.compute import Compute
from bert_jax.modeling.positions import Positions

if TYPE_CHECKING:
    from bert_jax.modeling import accelerators
    from bert_jax.modeling.inputs import Inputs
    from bert_jax.modeling.kernels import local
else:  # imported on first use, as most programs use none of them
    accelerators = LazyModule("bert_jax.modeling.accelerators")
    local = LazyModule("bert_jax.modeling.kernels.local")

_PLATFORMS = {"fused": "tpu", "splash": "tpu", "cudnn": "gpu"}
LOCAL = "local"  # replaces xla if the window is small relative to the length


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class AttentionPlan:
    """The plan for the attention of a layer: backend, mask and positions.

    Attributes:
        backend: one of `bert_jax.modeling.compute.ATTENTIONS` except auto; or local, or that of one kind of attention.
        mask: the attention mask.
        bias: bias of the scores from `mask` and relative positions, which the layers of this plan share: for xla
            `[B or 1, N or 1, 1 or S, S]`, for local in blocks; None for the other backends.
        extra: further arrays (a tree) that a kind of attention uses; `KindOfAttention.planned` adds them, or a
            `bert_jax.modeling.stack.Beside`.
        query_positions: the P query positions; None means all positions. With P positions, `bias` is
            `[B or 1, N or 1, 1 or P, S]`.
    """

    backend: str = dataclasses.field(metadata={"static": True})
    mask: AttentionMask
    bias: jax.Array | None
    extra: Any = None
    query_positions: Positions | None = None

    def only(self, positions: Positions) -> "AttentionPlan":
        """Return the plan for queries at `positions` only; its scores are few, so its backend is xla."""
        bias = self.mask.bias(positions.length, positions)
        return dataclasses.replace(self, backend="xla", bias=bias, query_positions=positions)

    def with_bias(self, bias: jax.Array) -> "AttentionPlan":
        """Return the plan with a further bias of the scores."""
        return dataclasses.replace(self, bias=bias if self.bias is None else bias + self.bias)


class KindOfAttention:
    """Methods by which a kind of attention changes mask and plan, without its module; BERT's changes nothing."""

    @staticmethod
    def mask_of(mask: AttentionMask, config: BertConfig, head: str, inputs: "Inputs") -> AttentionMask:
        """Return the mask of a forward pass, as this kind of attention changes it."""
        return mask

    @staticmethod
    def unfit(backend: str, config: BertConfig, mask: AttentionMask, length: int) -> str | None:
        """Return why a backend other than xla cannot compute attention of this kind, or None."""
        return None

    @staticmethod
    def longest_fused(compute: Compute) -> int | None:
        """Return the longest sequence that the backend fused supports; None = as for BERT's attention."""
        return None

    @staticmethod
    def planned(plan: AttentionPlan, config: BertConfig, length: int, maps: bool) -> AttentionPlan:
        """Return a plan, still without a bias, as this kind of attention changes it."""
        return plan


def plan_attention(
    mask: AttentionMask, config: BertConfig, compute: Compute, length: int, *, drops: bool, maps: bool
) -> AttentionPlan:
    """Choose the attention backend for sequences of `length`, with or without dropout and attention maps.

    Raises:
        InputError: `compute.attention` names a backend that does not support the inputs or the config.
    """
    drops = drops and config.attention_probs_dropout_prob > 0
    kind = kind_of_attention(config)
    backend = compute.attention
    if maps:
        backend = "xla"
    elif backend == "auto":
        backend = _cheapest(kind, config, compute, mask, length, drops)
    elif reason := _unfit(kind, backend, config, compute, mask, length, drops):
        raise InputError(f"attention={backend}: {reason}; use auto or xla")
    if backend == "xla" and not maps and _is_local(config, mask, length):
        return AttentionPlan(LOCAL, mask, local.bias(mask, length))
    plan = kind.planned(AttentionPlan(backend, mask, None), config, length, maps)
    return dataclasses.replace(plan, bias=mask.bias(length)) if plan.backend == "xla" else plan


def kind_of_attention(config: BertConfig) -> type[KindOfAttention]:
    """Return the class of the attention block: that of `config.positions` if it has one, or of `config.attention`."""
    kind: type[KindOfAttention] = import_object(config.positions.attention() or config.attention.builds())
    return kind


def _is_local(config: BertConfig, mask: AttentionMask, length: int) -> bool:
    """Return whether a small window of a long sequence is computed by blocks."""
    return mask.window is not None and not config.relative_positions and local.supports(length, mask.window)


def _cheapest(
    kind: type[KindOfAttention], config: BertConfig, compute: Compute, mask: AttentionMask, length: int, drops: bool
) -> str:
    """Return the backend that moves the fewest bytes to and from memory (docs/attention.md)."""
    shortest = {"fused": 256, "splash": 512, "cudnn": 512}
    if _is_local(config, mask, length):
        # Only splash and local skip work outside of the window.
        shortest = {"splash": 512}
    for backend, least in shortest.items():
        if length >= least and not _unfit(kind, backend, config, compute, mask, length, drops):
            return backend
    return "xla"


def _unfit(
    kind: type[KindOfAttention],
    backend: str,
    config: BertConfig,
    compute: Compute,
    mask: AttentionMask,
    length: int,
    drops: bool,
) -> str | None:
    """Return why a backend cannot be used, or None; xla can always be used, also for a symbolic length."""
    if backend == "xla":
        return None
    platform = _PLATFORMS.get(backend, compute.target)
    if platform != compute.target:
        return f"needs a {platform}, found {compute.target}"
    if reason := kind.unfit(backend, config, mask, length):
        return reason
    if config.positions.relative:
        return "does not support relative positions"
    if drops and backend != "fused":
        return (f"expected attention_probs_dropout_prob of 0, as this backend has no dropout, found "
                f"{config.attention_probs_dropout_prob}")  # fmt: skip
    return accelerators.unfit_sizes(backend, config, compute, length, kind.longest_fused(compute))
