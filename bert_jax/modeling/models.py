"""`Bert`: an encoder with a head, as pure functions of its parameters."""

import dataclasses
from typing import Any

import jax

from bert_jax.config import BertConfig
from bert_jax.errors import InputError, did_you_mean
from bert_jax.modeling.compute import Compute
from bert_jax.modeling.head_names import DECODER_HEAD, GLINER_HEAD, HEADS, summary_of
from bert_jax.modeling.outputs import BertOutput

Params = dict[str, Any]  # the canonical tree: nested dicts of arrays


@dataclasses.dataclass(frozen=True)
class Bert:
    """A BERT with a head, without parameters: its methods take and return the canonical tree of `abstract_params`.

    Attributes:
        config: the architecture.
        head: one of `HEADS`, or `decoder`: parameters of a decoder, which `EncoderDecoder` applies.
        compute: compute options.

    Raises:
        InputError: the head is not known, or needs a pooler or `gliner` and `config` has none.
    """

    config: BertConfig
    head: str = "encoder"
    compute: Compute = dataclasses.field(default_factory=Compute)

    def __post_init__(self) -> None:
        if self.head not in (*HEADS, DECODER_HEAD):
            raise InputError(f"head {self.head!r} is not known{did_you_mean(self.head, HEADS)}")
        if summary_of(self.config, self.head) == "pooler" and not self.config.pooler:
            raise InputError(f"head {self.head!r} needs a pooler, and the model config has pooler=False")
        if self.head == GLINER_HEAD and self.config.gliner is None:
            raise InputError(f"head {self.head!r} needs a model config with gliner, found none")

    @property
    def parts(self) -> tuple["Bert", ...]:
        """Return the models that a forward pass runs: only this one."""
        return (self,)

    def init(self, key: jax.Array) -> Params:
        """Initialise parameters, float32 if not quantized; jit with `out_shardings` to create them sharded."""
        from bert_jax.modeling import forward  # imports Flax

        return forward.init(self, key)

    def abstract_params(self) -> Params:
        """Return the tree of `init` with `jax.ShapeDtypeStruct` leaves."""
        return jax.eval_shape(self.init, jax.random.key(0))

    def apply(
        self,
        params: Params,
        input_ids: jax.Array,
        attention_mask: jax.Array | None = None,
        token_type_ids: jax.Array | None = None,
        position_ids: jax.Array | None = None,
        masked_positions: jax.Array | None = None,
        masked_labels: jax.Array | None = None,
        segment_ids: jax.Array | None = None,
        cls_positions: jax.Array | None = None,
        *,
        task_type_ids: jax.Array | None = None,
        global_attention_mask: jax.Array | None = None,
        word_positions: jax.Array | None = None,
        type_positions: jax.Array | None = None,
        dropout_key: jax.Array | None = None,
        sample_key: jax.Array | None = None,
        output_last_hidden_state: bool = True,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
        output_projections: bool = False,
    ) -> BertOutput:
        """Run the forward pass; a pure function, to be jitted by the caller.

        Args:
            params: the canonical tree.
            input_ids: `[B, S]` int32; `[B, K, S]` for multiple choice, as are the next three.
            attention_mask: 1 for tokens, 0 for padding; None means no padding.
            token_type_ids: segment ids; None means 0. For BigBird's span head, None or a row of 0 means 0 for the
                question and 1 for the rest.
            position_ids: positions, from 0 in every family. None means 0, 1, ...; in a family with a `position_offset`
                it means the number of earlier tokens that are not padding.
            masked_positions: `[B, P]`, positions at which to compute masked-LM logits; None means all positions.
            masked_labels: `[B, P]`, the original tokens at these positions. If given, the output has losses instead of
                masked-LM logits, which takes a fraction of the memory.
            segment_ids: `[B, S]`, for packed rows, in place of `attention_mask`: tokens attend only to tokens with the
                same number. Padding has a number of its own.
            cls_positions: `[B, M]`, the first position of each example in packed rows. Sequence outputs are then
                computed for each example. None means the first token.
            task_type_ids: `[B, S]`, or `[B, K, S]` for multiple choice; ids of ERNIE's tasks. None means 0.
            global_attention_mask: `[B, S]`, or `[B, K, S]` for multiple choice; 1 for tokens with global attention
                (Longformer); a row takes the first `config.max_global_tokens`. None means those of the head
                (`bert_jax.modeling.global_tokens`).
            word_positions: `[B, W]`, the token of each word of a text (zero-shot NER); 0 for padding, which comes last.
            type_positions: `[B, T]`, the token of each entity type (zero-shot NER); 0 for padding.
            dropout_key: None means no dropout, and no random blocks of block-sparse attention.
            sample_key: if given with `masked_labels`, the output has samples too.
            output_last_hidden_state: whether to return the last hidden state. Without it and the next three, the last
                layer computes only the positions that the head reads if layers are unrolled, with the same results.
            output_hidden_states: whether to return all hidden states.
            output_attentions: whether to return all attention maps, and contacts in a model with a contact head.
            output_projections: whether to return the queries, keys and values of all layers.

        Raises:
            InputError: the sequence is longer than the model's positions, `compute.attention` does not support it, or
                the head is `decoder`.
        """
        if self.head == DECODER_HEAD:
            raise InputError("a decoder reads an encoder's states: expected EncoderDecoder.apply, found Bert.apply")
        limit = self.config.max_position_embeddings
        if input_ids.shape[-1] > limit:
            raise InputError(
                f"expected at most the model's {limit} positions (max_position_embeddings), "
                f"found a sequence of {input_ids.shape[-1]} tokens"
            )
        from bert_jax.modeling import forward  # imports Flax

        return forward.apply(
            self,
            params,
            input_ids,
            attention_mask,
            token_type_ids,
            position_ids,
            masked_positions,
            masked_labels,
            segment_ids,
            cls_positions,
            task_type_ids,
            global_attention_mask,
            (word_positions, type_positions),
            dropout_key,
            sample_key,
            output_last_hidden_state,
            output_hidden_states,
            output_attentions,
            output_projections,
        )

    def embed_hidden_state(
        self, params: Params, hidden_state: jax.Array, attention_mask: jax.Array | None = None
    ) -> jax.Array:
        """Return the sentence embeddings of a model that ends with an earlier layer.

        Args:
            params: the canonical tree of head `sentence_embedding`.
            hidden_state: the output of the layer, `[B, S, D]`, from `BertOutput.hidden_states`.
            attention_mask: 1 for tokens, 0 for padding; None means no padding.

        Returns:
            float32 `[B, sentence_embedding_size]`.
        """
        from bert_jax.modeling import forward  # imports Flax

        return forward.embed_hidden_state(self, params, hidden_state, attention_mask)

    def places_computed(self, length: int, sentences: int = 1, predictions: int | None = None) -> int:
        """Return the number of positions per row that the last layer computes if no last hidden state is requested.

        These are the positions that the head reads if layers are unrolled, else all.

        Args:
            length: S, the number of tokens in a row.
            sentences: number of examples in a row.
            predictions: P, the number of masked positions; None means all positions.
        """
        config = self.config
        is_sparse = config.attention_windows or config.longest_full is not None  # with less work for all positions
        match self.head:
            case _ if self.compute.layers != "unroll":
                count = length
            case "pretraining" | "masked_lm" if is_sparse:
                count = length
            case "pretraining" | "masked_lm":
                count = length if predictions is None else predictions + sentences * (self.head == "pretraining")
            case "sequence_classification" | "multiple_choice" | "next_sentence":
                of_all = summary_of(config, self.head) != "pooler" and config.classifier_pooling != "cls"
                count = length if of_all else sentences
            case "sentence_embedding" if config.pooling == "cls" and not config.pooling_skip:
                count = sentences
            case _:
                count = length
        return min(count, length)
