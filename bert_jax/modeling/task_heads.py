"""The heads of BERT's tasks: which modules each has, and what it makes of the encoder's output."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from bert_jax.config import BertConfig
from bert_jax.errors import InputError
from bert_jax.modeling.compute import Compute
from bert_jax.modeling.dropout import dropout
from bert_jax.modeling.heads import MaskedLMHead
from bert_jax.modeling.inputs import Inputs
from bert_jax.modeling.layers import Dense
from bert_jax.modeling.pooling import pool_segments, pool_tokens
from bert_jax.modeling.positions import gather_positions

Outputs = dict[str, Any]  # arrays by their fields of `BertOutput`


@dataclasses.dataclass(frozen=True)
class HeadInputs:
    """What a head reads.

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
        choices: K, the number of choices of multiple choice.
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
        """Return what a head for tokens or spans reads, `[B, S, D]`."""
        has_summary = hasattr(self.module, "summary")
        return self.module.summary(self.states, self.compute) if has_summary else self.states

    def dense(self, layer: Dense, x: jax.Array) -> jax.Array:
        """Apply a layer, `[..., D] -> [..., out]`, in float32: its product is small, and its outputs are logits."""
        return layer(x.astype(jnp.float32), Compute(platform=self.compute.platform))

    def pool(self, x: jax.Array, poolings: tuple[str, ...], skip: int = 0) -> jax.Array:
        """Pool token vectors `[B, S, D]` to `[B, D]`, or in packed rows to `[B, M, D]`."""
        inputs = self.inputs
        if inputs.segment_ids is not None and inputs.cls_positions is not None:
            if skip:
                raise InputError("pooling_skip: expected rows of one example each, found rows of several")
            return pool_segments(x, inputs.segment_ids, inputs.cls_positions, poolings)
        mask = jnp.ones(x.shape[:2], jnp.int32) if inputs.attention_mask is None else inputs.attention_mask
        if poolings == ("cls",) and not skip:
            return x[:, 0].astype(jnp.float32)
        return pool_tokens(x, mask, poolings, skip)


class Head:
    """A head without modules and outputs of its own, that of the encoder alone."""

    def build(self, config: BertConfig, rngs: nnx.Rngs) -> dict[str, nnx.Module]:
        """Return the modules of the head, by name."""
        return {}

    def read(self, config: BertConfig, inputs: Inputs) -> Inputs:
        """Return the inputs as the encoder is to read them."""
        return inputs

    def __call__(self, encoded: HeadInputs) -> Outputs:
        """Return fields of the output."""
        return {}


class MaskedLM(Head):
    """Masked-LM logits, or with labels their losses, whose logits are never all in memory."""

    def build(self, config: BertConfig, rngs: nnx.Rngs) -> dict[str, nnx.Module]:
        return {"mlm": MaskedLMHead(config, rngs=rngs)}

    def __call__(self, encoded: HeadInputs) -> Outputs:
        return self.predict(encoded, "logits")

    def predict(self, encoded: HeadInputs, logits_name: str) -> Outputs:
        """Return logits under a name, or losses."""
        module, inputs, compute = encoded.module, encoded.inputs, encoded.compute
        at = encoded.states
        if inputs.masked_positions is not None:
            at = gather_positions(at, inputs.masked_positions)
        table, labels = module.embeddings.word_embeddings.table(), inputs.masked_labels
        if labels is None:
            return {logits_name: module.mlm.logits(at, table, compute)}
        if encoded.sample_key is None:
            losses, correct = module.mlm.losses(at, labels, table, compute)
            return {"masked_lm_losses": losses, "masked_lm_correct": correct}
        found = module.mlm.losses_and_samples(at, labels, table, encoded.sample_key, compute)
        return dict(zip(("masked_lm_losses", "masked_lm_correct", "masked_lm_samples"), found, strict=True))


class NextSentence(Head):
    """Whether the second text follows the first, from the pooler's output."""

    def build(self, config: BertConfig, rngs: nnx.Rngs) -> dict[str, nnx.Module]:
        return {"nsp": Dense(config, config.hidden_size, 2, rngs=rngs)}

    def __call__(self, encoded: HeadInputs) -> Outputs:
        assert encoded.pooled is not None
        return {"logits": encoded.dense(encoded.module.nsp, encoded.pooled)}


class Pretraining(Head):
    """The two heads of pretraining."""

    def build(self, config: BertConfig, rngs: nnx.Rngs) -> dict[str, nnx.Module]:
        return MaskedLM().build(config, rngs) | NextSentence().build(config, rngs)

    def __call__(self, encoded: HeadInputs) -> Outputs:
        found = {"seq_relationship_logits": NextSentence()(encoded)["logits"]}
        return MaskedLM().predict(encoded, "prediction_logits") | found


class SequenceClassifier(Head):
    """The class of a text, from the pooler's output or a summary of the head's own."""

    def build(self, config: BertConfig, rngs: nnx.Rngs) -> dict[str, nnx.Module]:
        return {"classifier": Dense(config, config.hidden_size, config.num_labels, rngs=rngs)}

    def __call__(self, encoded: HeadInputs) -> Outputs:
        return {"logits": self.classify(encoded, self.summary(encoded, encoded.dropout_key))}

    def classify(self, encoded: HeadInputs, summary: jax.Array) -> jax.Array:
        """Return logits, `[..., D] -> [B, C]`, or `[B, M, C]` with `cls_positions`."""
        logits = encoded.dense(encoded.module.classifier, encoded.drop(summary))
        return encoded.pool(logits, ("mean",)) if self._is_late(encoded) else logits

    def summary(self, encoded: HeadInputs, dropout_key: jax.Array | None) -> jax.Array:
        """Return what `classify` reads: `[B, D]`, or `[B, M, D]` with `cls_positions`; `[B, S, D]` if it is late."""
        if not hasattr(encoded.module, "summary"):
            assert encoded.pooled is not None
            return encoded.pooled
        x, config = encoded.states, encoded.config
        if self._is_late(encoded):
            first = x
        elif config.heads.classifier_pooling == "mean":
            first = encoded.pool(x, ("mean",)).astype(x.dtype)
        else:
            first = first_tokens(x, encoded.inputs.cls_positions)
        if rate := encoded.classifier_dropout if config.heads.drop_before_summary else config.heads.pooler_dropout:
            key = None if dropout_key is None else jax.random.fold_in(dropout_key, 1)
            first = dropout(first, rate, key)
        return encoded.module.summary(first, encoded.compute)

    @staticmethod
    def _is_late(encoded: HeadInputs) -> bool:
        """Return whether a classifier's logits are the mean of those of all tokens."""
        return encoded.config.heads.classifier_pooling == "late" and encoded.config.summary_of(encoded.name) != "pooler"


class MultipleChoice(SequenceClassifier):
    """Which of K texts answers: the logit of each."""

    def build(self, config: BertConfig, rngs: nnx.Rngs) -> dict[str, nnx.Module]:
        return {"classifier": Dense(config, config.hidden_size, 1, rngs=rngs)}

    def __call__(self, encoded: HeadInputs) -> Outputs:
        logits = self.classify(encoded, self.summary(encoded, None))  # [B * K, 1]
        return {"logits": logits.reshape(-1, encoded.choices)}


class TokenClassifier(Head):
    """The class of each token."""

    def build(self, config: BertConfig, rngs: nnx.Rngs) -> dict[str, nnx.Module]:
        return {"classifier": Dense(config, config.hidden_size, config.num_labels, rngs=rngs)}

    def __call__(self, encoded: HeadInputs) -> Outputs:
        return {"logits": encoded.dense(encoded.module.classifier, encoded.drop(encoded.tokens))}


class SpanHead(Head):
    """Where the answer to a question begins and ends."""

    def build(self, config: BertConfig, rngs: nnx.Rngs) -> dict[str, nnx.Module]:
        return {"qa_outputs": Dense(config, config.hidden_size, 2, rngs=rngs)}

    def __call__(self, encoded: HeadInputs) -> Outputs:
        x = self.states(encoded, dropout(encoded.tokens, encoded.config.heads.qa_dropout, encoded.dropout_key))
        logits = encoded.dense(encoded.module.qa_outputs, x)
        return {"start_logits": logits[..., 0], "end_logits": logits[..., 1]}

    def states(self, encoded: HeadInputs, x: jax.Array) -> jax.Array:
        """Return what the logits are a product of, `[B, S, D] -> [B, S, D]`."""
        return x


def first_tokens(x: jax.Array, cls_positions: jax.Array | None) -> jax.Array:
    """Return the first token's state of each example, `[B, D]`, or `[B, M, D]` with `cls_positions`."""
    return x[:, 0] if cls_positions is None else gather_positions(x, cls_positions)
