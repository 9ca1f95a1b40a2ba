"""The heads of fine-tuned models: sequence and token classification, multiple choice, question answering."""

import jax
from flax import nnx

from bert_jax.config import BertConfig
from bert_jax.modeling.dropout import dropout
from bert_jax.modeling.layers import Dense
from bert_jax.modeling.task_heads import Head, HeadInputs, Outputs, Read, first_tokens


class SequenceClassifier(Head):
    """Sequence classification: logits from the pooler's output, or from a dense layer of the head's own."""

    name = "sequence_classification"

    def build(self, config: BertConfig, rngs: nnx.Rngs) -> dict[str, nnx.Module]:
        return {"classifier": Dense(config, config.hidden_size, config.num_labels, rngs=rngs)}

    def positions_read(self, config: BertConfig) -> Read | None:
        of_first = config.summary_of(self.name) == "pooler" or config.heads.classifier_pooling == "cls"
        return Read(first=True, masked=False) if of_first else None

    def __call__(self, encoded: HeadInputs) -> Outputs:
        return {"logits": self.classify(encoded, self.summary(encoded, encoded.dropout_key))}

    def classify(self, encoded: HeadInputs, summary: jax.Array) -> jax.Array:
        """Return logits, `[..., D] -> [B, C]`, or `[B, M, C]` with `cls_positions`."""
        logits = encoded.dense(encoded.module.classifier, encoded.drop(summary))
        return encoded.pool(logits, ("mean",)) if self._is_late(encoded) else logits

    def summary(self, encoded: HeadInputs, dropout_key: jax.Array | None) -> jax.Array:
        """Return the input of `classify`: `[B, D]`, or `[B, M, D]` with `cls_positions`; `[B, S, D]` if `_is_late`."""
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
            first = dropout(first, rate, None if dropout_key is None else jax.random.fold_in(dropout_key, 1))
        summary: jax.Array = encoded.module.summary(first, encoded.compute)
        return summary

    @staticmethod
    def _is_late(encoded: HeadInputs) -> bool:
        """Return whether pooling is late: the logits are the mean of those of all tokens."""
        return encoded.config.heads.classifier_pooling == "late" and encoded.config.summary_of(encoded.name) != "pooler"


class MultipleChoice(SequenceClassifier):
    """Multiple choice: a logit for each of K texts."""

    name = "multiple_choice"

    def build(self, config: BertConfig, rngs: nnx.Rngs) -> dict[str, nnx.Module]:
        return {"classifier": Dense(config, config.hidden_size, 1, rngs=rngs)}

    def __call__(self, encoded: HeadInputs) -> Outputs:
        logits = self.classify(encoded, self.summary(encoded, None))  # [B * K, 1]
        return {"logits": logits.reshape(-1, encoded.choices)}


class TokenClassifier(Head):
    """Token classification: logits of the classes of each token."""

    def build(self, config: BertConfig, rngs: nnx.Rngs) -> dict[str, nnx.Module]:
        return {"classifier": Dense(config, config.hidden_size, config.num_labels, rngs=rngs)}

    def __call__(self, encoded: HeadInputs) -> Outputs:
        return {"logits": encoded.dense(encoded.module.classifier, encoded.drop(encoded.tokens))}


class SpanHead(Head):
    """Question answering: logits of the start and the end of the answer."""

    def build(self, config: BertConfig, rngs: nnx.Rngs) -> dict[str, nnx.Module]:
        return {"qa_outputs": Dense(config, config.hidden_size, 2, rngs=rngs)}

    def __call__(self, encoded: HeadInputs) -> Outputs:
        rate = encoded.config.heads.qa_dropout
        rate = encoded.classifier_dropout if rate is None else rate
        x = self.states(encoded, dropout(encoded.tokens, rate, encoded.dropout_key))
        logits = encoded.dense(encoded.module.qa_outputs, x)
        return {"start_logits": logits[..., 0], "end_logits": logits[..., 1]}

    def states(self, encoded: HeadInputs, x: jax.Array) -> jax.Array:
        """Return the input of the output layer, `[B, S, D] -> [B, S, D]`."""
        return x
