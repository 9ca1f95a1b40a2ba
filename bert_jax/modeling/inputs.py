"""The arguments of a forward pass: `Inputs`, the arrays that a model reads, and `Options`, what it computes."""

import dataclasses

import jax


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Inputs:
    """The arrays that a model reads, int32. For multiple choice, those of shape `[B, S]` are `[B, K, S]`.

    Attributes:
        input_ids: ids of the tokens, `[B, S]`.
        attention_mask: `[B, S]`, 1 for tokens, 0 for padding; None means no padding.
        token_type_ids: `[B, S]`, 0 for tokens of the first text, 1 for those of the second; None means 0. For a span
            head that leaves out the question, None or a row of 0 means 0 for the question and 1 for the rest.
        position_ids: `[B, S]`, positions, from 0 in every family. None means 0, 1, ...; in a family with a
            `position_offset` it means the number of earlier tokens that are not padding.
        masked_positions: `[B, P]`, positions at which to compute masked-LM logits; None means all positions.
        masked_labels: `[B, P]`, the original tokens at these positions. If given, the output has losses instead of
            masked-LM logits, which takes a fraction of the memory.
        segment_ids: `[B, S]`, for packed rows, in place of `attention_mask`: the number of each token's example, to
            whose tokens alone it attends. Padding has a number of its own.
        cls_positions: `[B, M]`, the first position of each example in packed rows. Sequence outputs are then computed
            for each example. None means the first token.
        task_type_ids: `[B, S]`, ids of tasks; None means 0.
        global_attention_mask: `[B, S]`, 1 for tokens with global attention; only the first `max_global_tokens` of a
            row count. None means the head's default.
        word_positions: `[B, W]`, the token of each word of a text (zero-shot NER); 0 for padding, which comes last.
        type_positions: `[B, T]`, the token of each entity type (zero-shot NER); 0 for padding.
        pooling_mask: `[B, S]`, 1 for tokens that are pooled into a sentence embedding; None means those of
            `attention_mask` after the first `config.pooling_skip`.
    """

    input_ids: jax.Array
    attention_mask: jax.Array | None = None
    token_type_ids: jax.Array | None = None
    position_ids: jax.Array | None = None
    masked_positions: jax.Array | None = None
    masked_labels: jax.Array | None = None
    segment_ids: jax.Array | None = None
    cls_positions: jax.Array | None = None
    task_type_ids: jax.Array | None = None
    global_attention_mask: jax.Array | None = None
    word_positions: jax.Array | None = None
    type_positions: jax.Array | None = None
    pooling_mask: jax.Array | None = None

    def with_choices_as_rows(self) -> "Inputs":
        """Return the inputs `[B, K, S]` of multiple choice as `[B * K, S]`."""
        return Inputs(**jax.tree.map(lambda array: array.reshape(-1, array.shape[-1]), vars(self)))


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of a forward pass: what it computes.

    Attributes:
        dropout_key: None means no dropout, and no random blocks of block-sparse attention.
        sample_key: if given with `masked_labels`, the output has samples too.
        output_last_hidden_state: whether to return the last hidden state. Without it and the next three, if layers are
            unrolled, the last layer computes only the positions that the head reads, with the same results.
        output_hidden_states: whether to return all hidden states.
        output_attentions: whether to return all attention maps, and contacts in a model with a contact head.
        output_projections: whether to return the queries, keys and values of all layers.
    """

    dropout_key: jax.Array | None = None
    sample_key: jax.Array | None = None
    output_last_hidden_state: bool = True
    output_hidden_states: bool = False
    output_attentions: bool = False
    output_projections: bool = False

    @property
    def reads_states(self) -> bool:
        """Return whether the output has states or maps of all positions."""
        return (
            self.output_last_hidden_state
            or self.output_hidden_states
            or self.output_attentions
            or self.output_projections
        )
