"""Sentence embeddings from hidden states of an earlier layer, or from token vectors that were pooled elsewhere."""

import functools

import jax
import jax.numpy as jnp

from bert_jax.modeling.embedding_heads import MultiVectorHead
from bert_jax.modeling.forward import merge_params
from bert_jax.modeling.inputs import Inputs
from bert_jax.modeling.registry import head_of
from bert_jax.modeling.spec import ModelSpec, Params
from bert_jax.modeling.task_heads import HeadInputs


@functools.partial(jax.jit, static_argnums=0)
def embed_pooled(bert: ModelSpec, params: Params, pooled: jax.Array) -> jax.Array:
    """Apply the layers of the head that follow its pooling.

    Args:
        bert: the model, with the head `sentence_embedding`.
        params: its canonical tree.
        pooled: pooled token vectors, `[N, D]`.

    Returns:
        float32 `[N, sentence_embedding_size]`.
    """
    inputs = Inputs(jnp.zeros((len(pooled), 1), jnp.int32))
    module = merge_params(bert, params)
    encoded = HeadInputs(bert.head, bert.config, bert.compute, module, inputs, pooled[:, None])
    head = head_of(bert.config, bert.head)
    assert isinstance(head, MultiVectorHead)  # the base class of the head of sentence embeddings
    return head.layered(encoded, pooled)


def embed_hidden_state(
    bert: ModelSpec,
    params: Params,
    hidden_state: jax.Array,
    attention_mask: jax.Array | None,
    pooling_mask: jax.Array | None,
) -> jax.Array:
    """Return the sentence embeddings of an earlier layer; arguments as for `Bert.embed_hidden_state`."""
    module = merge_params(bert, params)
    x = module.encoder.layer_norm(hidden_state) if hasattr(module.encoder, "layer_norm") else hidden_state
    inputs = Inputs(jnp.zeros(x.shape[:2], jnp.int32), attention_mask, pooling_mask=pooling_mask)
    encoded = HeadInputs(bert.head, bert.config, bert.compute, module, inputs, x)
    embeddings: jax.Array = head_of(bert.config, bert.head)(encoded)["sentence_embedding"]
    return embeddings
