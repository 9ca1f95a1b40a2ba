"""The heads of sparse embeddings: a weight for each token of the text, or for each token of the vocabulary."""

import jax
import jax.numpy as jnp
from flax import nnx

from bert_jax.config import BertConfig
from bert_jax.errors import InputError
from bert_jax.modeling.layers import Dense
from bert_jax.modeling.task_heads import Head, HeadInputs, MaskedLM, Outputs, Read


class LexicalWeightsHead(Head):
    """The weight of each token of the text in its sparse embedding."""

    def build(self, config: BertConfig, rngs: nnx.Rngs) -> dict[str, nnx.Module]:
        return {"token_weights": Dense(config, config.hidden_size, 1, rngs=rngs)}

    def __call__(self, encoded: HeadInputs) -> Outputs:
        weights = encoded.dense(encoded.module.token_weights, encoded.states)
        return {"token_weights": jax.nn.relu(weights)[..., 0]}


class QueryWeights(nnx.Module):
    """A weight for each token of the vocabulary `[V]`: the sparse embedding of a query has those of its tokens."""

    def __init__(self, config: BertConfig):
        self.weight = nnx.Param(jnp.ones((config.vocab_size,), jnp.float32))


class SpladeHead(MaskedLM):
    """A sparse embedding over the vocabulary, from the logits of the masked-LM head."""

    def build(self, config: BertConfig, rngs: nnx.Rngs) -> dict[str, nnx.Module]:
        modules = super().build(config, rngs)
        return modules | {"query_weights": QueryWeights(config)} if config.query_weights else modules

    def positions_read(self, config: BertConfig) -> Read | None:
        return None

    def __call__(self, encoded: HeadInputs) -> Outputs:
        inputs, module = encoded.inputs, encoded.module
        if inputs.segment_ids is not None:
            raise InputError("sparse_embedding: expected rows of one example each, found rows of several")
        shape, mask = encoded.states.shape[:2], inputs.attention_mask
        mask = jnp.ones(shape, jnp.int32) if mask is None else mask
        table, pooling = module.embeddings.word_embeddings.table(), encoded.config.pooling
        return {"sentence_embedding": module.mlm.sparse(encoded.states, mask, table, pooling, encoded.compute)}
