"""BigBird's span head: a feed-forward block, and no answers in the question."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from bert_jax.config import BertConfig
from bert_jax.errors import InputError
from bert_jax.modeling.classifier_heads import SpanHead
from bert_jax.modeling.compute import Compute
from bert_jax.modeling.dropout import dropout
from bert_jax.modeling.heads import head_norm
from bert_jax.modeling.inputs import Inputs
from bert_jax.modeling.layers import ACTIVATIONS, Dense
from bert_jax.modeling.task_heads import HeadInputs, Outputs


def question_tokens(config: BertConfig, input_ids: Any) -> Any:
    """Return which tokens are the question's, bool `[B, S]`: up to the first separator; without one, only the first."""
    is_separator = input_ids == config.setting("sep_token_id")
    places = (is_separator | True).cumsum(-1)
    return places <= is_separator.argmax(-1)[:, None] + 1


class SpanFeedForward(nnx.Module):
    """The feed-forward block of BigBird's span head, `[..., D] -> [..., D]`, with dropout of input and output."""

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        self.activation, self.rate = config.hidden_act, config.hidden_dropout_prob
        self.up = Dense(config, config.hidden_size, config.intermediate_size, rngs=rngs)
        self.down = Dense(config, config.intermediate_size, config.hidden_size, rngs=rngs)
        self.layer_norm = head_norm(config, config.hidden_size)

    def __call__(self, x: jax.Array, compute: Compute, dropout_key: jax.Array | None) -> jax.Array:
        keys = (None, None) if dropout_key is None else jax.random.split(dropout_key)
        y = ACTIVATIONS[self.activation](self.up(dropout(x, self.rate, keys[0]), compute))
        return self.layer_norm(x + dropout(self.down(y, compute), self.rate, keys[1]))


class SpanAfterQuestionHead(SpanHead):
    """A span head whose answers follow the question, which has token type 0 by default; the rest has 1."""

    def build(self, config: BertConfig, rngs: nnx.Rngs) -> dict[str, nnx.Module]:
        return super().build(config, rngs) | {"span": SpanFeedForward(config, rngs=rngs)}

    def prepare(self, config: BertConfig, inputs: Inputs) -> Inputs:
        if inputs.segment_ids is not None:
            raise InputError("segment_ids: expected none, as the span head needs one question per row, found an array")
        of_question = 1 - question_tokens(config, inputs.input_ids).astype(jnp.int32)
        types = inputs.token_type_ids
        types = of_question if types is None else jnp.where(types.any(-1, keepdims=True), types, of_question)
        return dataclasses.replace(inputs, token_type_ids=types)

    def states(self, encoded: HeadInputs, x: jax.Array) -> jax.Array:
        return encoded.module.span(x, encoded.compute, encoded.dropout_key)

    def __call__(self, encoded: HeadInputs) -> Outputs:
        question = question_tokens(encoded.config, encoded.inputs.input_ids)
        after_first = jnp.arange(question.shape[1]) > 0
        penalty = 1e6 * (question & after_first)  # no answer inside the question; the first token means "no answer"
        return {name: logits - penalty for name, logits in super().__call__(encoded).items()}
