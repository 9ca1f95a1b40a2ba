"""The modules of Qwen3 (Qwen Team 2025, arXiv:2505.09388, section 2)."""

import jax
from flax import nnx

from bert_jax.config import BertConfig
from bert_jax.modeling.causal import CausalAttention
from bert_jax.modeling.classifier_heads import SequenceClassifier
from bert_jax.modeling.head_norms import NormedRotaryAttention
from bert_jax.modeling.layers import Dense
from bert_jax.modeling.task_heads import HeadInputs, Read


class QwenAttention(CausalAttention, NormedRotaryAttention):
    """Rotary attention to earlier tokens alone, with norms of each head's query and key."""


class LastTokenClassifier(SequenceClassifier):
    """Sequence classification from the state of the last token, by one matrix."""

    def build(self, config: BertConfig, rngs: nnx.Rngs) -> dict[str, nnx.Module]:
        return {"classifier": Dense(config, config.hidden_size, config.num_labels, use_bias=False, rngs=rngs)}

    def positions_read(self, config: BertConfig) -> Read | None:
        return None

    def summary(self, encoded: HeadInputs, dropout_key: jax.Array | None) -> jax.Array:
        return encoded.pool(encoded.states, ("lasttoken",)).astype(encoded.states.dtype)
