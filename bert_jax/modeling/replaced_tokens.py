"""The head of ELECTRA's discriminator (Clark et al. 2020, arXiv:2003.10555)."""

import jax
import jax.numpy as jnp
from flax import nnx

from bert_jax.config import BertConfig
from bert_jax.modeling.compute import Compute
from bert_jax.modeling.heads import head_norm
from bert_jax.modeling.layers import ACTIVATIONS, Dense
from bert_jax.modeling.pooling import segment_starts
from bert_jax.modeling.positions import gather_positions
from bert_jax.modeling.task_heads import Head, HeadInputs, Outputs


class Discriminator(nnx.Module):
    """ELECTRA's discriminator head, `[B, S, D] -> [B, S]`: logits that a token was replaced.

    With `discriminator_norm` it first adds the state of the example's first token to that of each token, and applies a
    LayerNorm, as in DeBERTa-v3 (github.com/microsoft/DeBERTa).
    """

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        self.activation = config.hidden_act
        if config.setting("discriminator_norm"):
            self.layer_norm = head_norm(config, config.hidden_size)
        self.dense = Dense(config, config.hidden_size, config.hidden_size, rngs=rngs)
        self.output = Dense(config, config.hidden_size, 1, rngs=rngs)

    def __call__(self, x: jax.Array, segment_ids: jax.Array | None, compute: Compute) -> jax.Array:
        if hasattr(self, "layer_norm"):
            first = x[:, :1] if segment_ids is None else gather_positions(x, segment_starts(segment_ids))
            x = self.layer_norm(x + first)
        x = ACTIVATIONS[self.activation](self.dense(x, compute)).astype(jnp.float32)
        return self.output(x, Compute(platform=compute.platform))[..., 0]


class ReplacedTokens(Head):
    """Replaced-token detection: a logit for each token."""

    def build(self, config: BertConfig, rngs: nnx.Rngs) -> dict[str, nnx.Module]:
        return {"discriminator": Discriminator(config, rngs=rngs)}

    def __call__(self, encoded: HeadInputs) -> Outputs:
        discriminator, segments = encoded.module.discriminator, encoded.inputs.segment_ids
        return {"logits": discriminator(encoded.states, segments, encoded.compute)}
