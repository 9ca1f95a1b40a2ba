"""`BertOutput`, the output of a forward pass."""

import dataclasses
from typing import Any

import jax


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class BertOutput:
    """The output of a forward pass; fields that the head does not have are None. Logits are float32.

    Attributes:
        last_hidden_state: `[B, S, D]`; None if it was not requested.
        pooler_output: `[B, D]`, or `[B, M, D]` at given positions.
        logits: `[B, C]`, or `[B, M, C]` at given positions (sequence classification), `[B, S, C]` (token
            classification), `[B, K]` (multiple choice), `[B, S, V]`, or `[B, P, V]` at given positions (masked LM),
            `[B, S]` (replaced-token detection), `[B, W, K, T]` for first words, widths and types (zero-shot NER), or
            those of seq_relationship_logits (next sentence).
        prediction_logits: `[B, S, V]`, or `[B, P, V]` at given positions (pretraining).
        masked_lm_losses: `[B, P]`, the cross entropy of each given label, in place of logits (masked LM, pretraining).
        masked_lm_correct: `[B, P]`, 1 where the label has the greatest logit (masked LM, pretraining).
        masked_lm_samples: `[B, P]` int32, tokens sampled from the logits with `sample_key` (masked LM).
        seq_relationship_logits: `[B, 2]`, or `[B, M, 2]` at given positions; class 0 is "B follows A" (pretraining).
        start_logits: `[B, S]` (question answering).
        end_logits: `[B, S]` (question answering).
        sentence_embedding: `[B, D]`, or `[B, M, D]` at given positions (sentence embedding); `[B, V]`, weights of the
            vocabulary (sparse embedding).
        token_embeddings: `[B, S, D]`, a vector for each token (multi-vector).
        token_weights: `[B, S]`, the weight of each token (sparse embedding with `lexical` pooling).
        hidden_states: `L + 1` of `[B, S, D]`, the first from the embeddings.
        attentions: `L` of `[B, N, S, S]`.
        contacts: `[B, S - 2, S - 2]`, probabilities that two residues of a protein touch, without the special tokens
            around them; present with `attentions` in a model with a contact head.
        projections: `L` of (query, key, value), each `[B, S, D]`, before rotary positions.
    """

    last_hidden_state: jax.Array | None
    pooler_output: jax.Array | None = None
    logits: jax.Array | None = None
    prediction_logits: jax.Array | None = None
    masked_lm_losses: jax.Array | None = None
    masked_lm_correct: jax.Array | None = None
    masked_lm_samples: jax.Array | None = None
    seq_relationship_logits: jax.Array | None = None
    start_logits: jax.Array | None = None
    end_logits: jax.Array | None = None
    sentence_embedding: jax.Array | None = None
    token_embeddings: jax.Array | None = None
    token_weights: jax.Array | None = None
    hidden_states: tuple[jax.Array, ...] | None = None
    attentions: tuple[jax.Array, ...] | None = None
    contacts: jax.Array | None = None
    projections: tuple[tuple[jax.Array, ...], ...] | None = None

    def to_tuple(self) -> tuple[Any, ...]:
        """Return the fields that are not None in the order of transformers' outputs.

        These are the fields of the head (for a bare encoder `last_hidden_state` and `pooler_output`), then
        `hidden_states` and `attentions`. Contacts and projections are not among them.
        """
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        encoder = (values.pop("last_hidden_state"), values.pop("pooler_output"))
        extras = (values.pop("hidden_states"), values.pop("attentions"))
        del values["contacts"], values["projections"]
        head = tuple(value for value in values.values() if value is not None)
        return tuple(value for value in (*(head or encoder), *extras) if value is not None)

    def __getitem__(self, key: int | slice | str) -> Any:
        """Return a field by its index in `to_tuple()`, or by its name."""
        return getattr(self, key) if isinstance(key, str) else self.to_tuple()[key]
