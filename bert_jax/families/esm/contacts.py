"""Contacts of a protein's residues, predicted from attention maps (Rao et al. 2021, doi:10.1101/2020.12.15.422761)."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx

from bert_jax.config import BertConfig
from bert_jax.modeling.layers import Dense
from bert_jax.modeling.task_heads import Head, HeadInputs, Outputs

_EOS = 2  # the id of <eos> in the vocabulary of every ESM


class ContactHead(nnx.Module):
    """A logistic regression over all attention maps, after symmetrisation and average product correction."""

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        self.dense = Dense(config, config.num_hidden_layers * config.num_attention_heads, 1, rngs=rngs)

    def __call__(
        self,
        attentions: Sequence[jax.Array],  # L maps [B, N, S, S]
        input_ids: jax.Array,  # [B, S]
        attention_mask: jax.Array | None,  # [B, S]
    ) -> jax.Array:
        """Return the contact probabilities of residues, `[B, S - 2, S - 2]`, without the special tokens around them."""
        residues = input_ids != _EOS
        if attention_mask is not None:
            residues &= attention_mask > 0
        pairs = (residues[:, None, :, None] & residues[:, None, None, :])[..., 1:-1, 1:-1]
        weights = self.dense.kernel[...].reshape(len(attentions), -1)  # [L, N]
        logits = self.dense.bias[...][0]
        for attention, of_layer in zip(attentions, weights, strict=True):
            maps = jnp.where(pairs, attention.astype(jnp.float32)[..., 1:-1, 1:-1], 0)
            maps = maps + maps.swapaxes(-1, -2)
            rows, total = maps.sum(-1, keepdims=True), maps.sum((-1, -2), keepdims=True)
            corrected = maps - rows * rows.swapaxes(-1, -2) / jnp.where(total > 0, total, 1)
            logits += jnp.einsum("bnij,n->bij", corrected, of_layer, precision=jax.lax.Precision.HIGHEST)
        return jax.nn.sigmoid(logits)


class Contacts(Head):
    """The head that predicts contacts if attention maps are requested."""

    def build(self, config: BertConfig, rngs: nnx.Rngs) -> dict[str, nnx.Module]:
        return {"contact_head": ContactHead(config, rngs=rngs)}

    def __call__(self, encoded: HeadInputs) -> Outputs:
        inputs = encoded.inputs
        if encoded.maps is None:
            return {}
        return {"contacts": encoded.module.contact_head(encoded.maps, inputs.input_ids, inputs.attention_mask)}
