"""Inputs and outputs of heads, and the masked-LM head."""

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from bert_jax.config import BertConfig
from bert_jax.errors import InputError
from bert_jax.lazy import LazyModule, import_object
from bert_jax.modeling.compute import Compute
from bert_jax.modeling.dropout import dropout
from bert_jax.modeling.inputs import Inputs
from bert_jax.modeling.layers import Dense
from bert_jax.modeling.positions import gather_positions

if TYPE_CHECKING:
    from bert_jax.modeling import pooling
else:
    pooling = LazyModule("bert_jax.modeling.pooling")

Outputs = dict[str, Any]  # field of `BertOutput` -> array


@dataclasses.dataclass(frozen=True)
class HeadInputs:
    """The inputs of a head.

    Attributes:
        name: the head's name, one of `HEADS`.
        config: the architecture.
        compute: compute options.
        module: the modules of the model (`bert_jax.modeling.forward`), of which a head uses its own.
        inputs: the inputs of the forward pass.
        states: the encoder's output `[B, S, D]`, or `[B, P, D]` where the head reads P positions.
        pooled: the pooler's output `[B, D]`, or `[B, M, D]` with `cls_positions`; None without a pooler.
        dropout_key: None means no dropout.
        sample_key: None means no samples.
        choices: K, the number of choices in multiple choice.
        maps: the attention maps of all layers, each `[B, N, S, S]`, or None.
    """

    name: str
    config: BertConfig
    compute: Compute
    module: Any
    inputs: Inputs
    states: jax.Array
    pooled: jax.Array | None = None
    dropout_key: jax.Array | None = None
    sample_key: jax.Array | None = None
    choices: int | None = None
    maps: tuple[jax.Array, ...] | None = None

    def drop(self, x: jax.Array) -> jax.Array:
        """Apply the dropout before a classifier."""
        return dropout(x, self.classifier_dropout, self.dropout_key)

    @property
    def classifier_dropout(self) -> float:
        """Return the rate of the dropout before a classifier."""
        rate = self.config.heads.classifier_dropout
        return self.config.hidden_dropout_prob if rate is None else rate

    @property
    def tokens(self) -> jax.Array:
        """Return the input of a token classifier or a span head, `[B, S, D]`."""
        has_summary = hasattr(self.module, "summary")
        return self.module.summary(self.states, self.compute) if has_summary else self.states

    def dense(self, layer: Dense, x: jax.Array) -> jax.Array:
        """Apply a layer, `[..., D] -> [..., out]`, in float32: its product is small, and its outputs are logits."""
        return layer(x.astype(jnp.float32), Compute(platform=self.compute.platform))

    def pool(self, x: jax.Array, poolings: tuple[str, ...], skip: int = 0) -> jax.Array:
        """Pool token vectors `[B, S, D]` to `[B, D]`, or in packed rows to `[B, M, D]`."""
        inputs = self.inputs
        if inputs.segment_ids is not None and inputs.cls_positions is not None:
            if skip or inputs.pooling_mask is not None:
                raise InputError("pooling_skip: expected rows of one example each, found rows of several")
            return pooling.pool_segments(x, inputs.segment_ids, inputs.cls_positions, poolings)
        if inputs.pooling_mask is not None:
            return pooling.pool_tokens(x, inputs.pooling_mask, poolings)
        mask = jnp.ones(x.shape[:2], jnp.int32) if inputs.attention_mask is None else inputs.attention_mask
        if poolings == ("cls",) and not skip:
            return x[:, 0].astype(jnp.float32)
        return pooling.pool_tokens(x, mask, poolings, skip)


class Read(NamedTuple):
    """Which positions a head reads, if not all."""

    first: bool  # reads the first token of each example
    masked: bool  # reads the masked positions


class Head:
    """The base class of heads, and the head `encoder`, which has no modules and no outputs of its own."""

    def build(self, config: BertConfig, rngs: nnx.Rngs) -> dict[str, nnx.Module]:
        """Return the modules of the head, by name."""
        return {}

    def prepare(self, config: BertConfig, inputs: Inputs) -> Inputs:
        """Return the inputs of the encoder, as this head needs them."""
        return inputs

    def positions_read(self, config: BertConfig) -> Read | None:
        """Return the positions of the encoder's output that the head reads; None = all."""
        return None

    def __call__(self, encoded: HeadInputs) -> Outputs:
        """Return the head's fields of `BertOutput`."""
        return {}


class MaskedLM(Head):
    """Masked LM: logits, or with labels the losses, without all logits in memory at once."""

    def build(self, config: BertConfig, rngs: nnx.Rngs) -> dict[str, nnx.Module]:
        return {"mlm": import_object(config.heads.masked_lm())(config, rngs=rngs)}

    def positions_read(self, config: BertConfig) -> Read | None:
        return None if config.attention.sparse else Read(first=False, masked=True)

    def __call__(self, encoded: HeadInputs) -> Outputs:
        return self.predict(encoded, "logits")

    def predict(self, encoded: HeadInputs, logits_name: str) -> Outputs:
        """Return logits as `logits_name` or, with labels, losses."""
        module, inputs, compute = encoded.module, encoded.inputs, encoded.compute
        states = encoded.states
        if inputs.masked_positions is not None:
            states = gather_positions(states, inputs.masked_positions)
        table, labels = module.embeddings.word_embeddings.table(), inputs.masked_labels
        if labels is None:
            return {logits_name: module.mlm.logits(states, table, compute)}
        if encoded.sample_key is None:
            losses, correct = module.mlm.losses(states, labels, table, compute)
            return {"masked_lm_losses": losses, "masked_lm_correct": correct}
        outputs = module.mlm.losses_and_samples(states, labels, table, encoded.sample_key, compute)
        return dict(zip(("masked_lm_losses", "masked_lm_correct", "masked_lm_samples"), outputs, strict=True))


def first_tokens(x: jax.Array, cls_positions: jax.Array | None) -> jax.Array:
    """Return the first token's state of each example, `[B, D]`, or `[B, M, D]` with `cls_positions`."""
    return x[:, 0] if cls_positions is None else gather_positions(x, cls_positions)
