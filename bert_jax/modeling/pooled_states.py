"""Sentence embeddings from token vectors that were pooled outside of the model."""

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
