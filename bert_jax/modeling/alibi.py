"""ALiBi: scores that fall with the distance (Press et al. 2021, arXiv:2108.12409, section 3)."""

import jax
import jax.numpy as jnp

from bert_jax.config import BertConfig
from bert_jax.modeling.attention import DropoutKeys, SelfAttention
from bert_jax.modeling.attention_mask import AttentionMask
from bert_jax.modeling.attention_plan import AttentionPlan
from bert_jax.modeling.compute import Compute
from bert_jax.modeling.positions import alibi_slopes


class AlibiAttention(SelfAttention):
    """Attention whose scores are lowered by the distance times the slope of a head."""

    @staticmethod
    def unfit(backend: str, config: BertConfig, mask: AttentionMask, length: int) -> str | None:
        return "does not support positions of type alibi"

    def attend(
        self, x: jax.Array, plan: AttentionPlan, projected: tuple[jax.Array, ...], dropout_keys: DropoutKeys,
        compute: Compute,
    ) -> tuple[jax.Array, jax.Array | None]:  # fmt: skip
        if plan.backend == "xla":
            plan = _with_alibi(plan, projected[1].shape[1], self.config.num_attention_heads)
        return super().attend(x, plan, projected, dropout_keys, compute)


def _with_alibi(plan: AttentionPlan, length: int, heads: int) -> AttentionPlan:
    """Add ALiBi to the bias of a plan; each layer does this itself, so that the compiler fuses it with the scores."""
    keys = jnp.arange(length)
    queries = keys[None] if plan.query_positions is None else plan.query_positions.index
    distances = abs(queries[:, None, :, None] - keys).astype(jnp.float32)  # [1 or B, 1, S or P, S]
    return plan.with_bias(-jnp.asarray(alibi_slopes(heads))[:, None, None] * distances)
