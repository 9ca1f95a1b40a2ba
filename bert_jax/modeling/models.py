"""`Bert`: an encoder with a head, as pure functions of its parameters."""

import dataclasses
from typing import Any

import jax

from bert_jax.errors import InputError
from bert_jax.head_names import DECODER_HEAD
from bert_jax.modeling.inputs import Inputs, Options
from bert_jax.modeling.outputs import BertOutput
from bert_jax.modeling.spec import ModelSpec, Params

_OPTIONS = {field.name for field in dataclasses.fields(Options)}


@dataclasses.dataclass(frozen=True)
class Bert(ModelSpec):
    """A BERT with a head, without parameters: its methods take and return the canonical tree of `abstract_params`.

    Attributes:
        config: the architecture.
        head: one of `HEADS`, or `decoder`: parameters of a decoder, which `EncoderDecoder` applies.
        compute: compute options.

    Raises:
        InputError: the head is not known, or needs a pooler or `gliner` that `config` lacks.
    """

    def init(self, key: jax.Array) -> Params:
        """Initialise parameters, float32 if not quantized; jit with `out_shardings` to create them sharded."""
        from bert_jax.modeling import forward  # imports Flax

        return forward.init(self, key)

    def abstract_params(self) -> Params:
        """Return the tree of `init` with `jax.ShapeDtypeStruct` leaves."""
        params: Params = jax.eval_shape(self.init, jax.random.key(0))
        return params

    def apply(self, params: Params, *arrays: jax.Array | None, **named: Any) -> BertOutput:
        """Run the forward pass; a pure function, to be jitted by the caller.

            output = bert.apply(params, input_ids, attention_mask, dropout_key=key)

        Args:
            params: the canonical tree.
            arrays: the fields of `Inputs` in their order.
            named: fields of `Inputs` and `Options`.

        Raises:
            InputError: the sequence is longer than the model's positions, `compute.attention` does not support it, or
                the head is `decoder`.
            TypeError: there is no such field, or `input_ids` is missing.
        """
        options = Options(**{name: named.pop(name) for name in _OPTIONS & named.keys()})
        inputs = Inputs(*arrays, **named)  # type: ignore[arg-type]
        if self.head == DECODER_HEAD:
            raise InputError("a decoder reads an encoder's states: expected EncoderDecoder.apply, found Bert.apply")
        limit, length = self.config.max_position_embeddings, inputs.input_ids.shape[-1]
        if length > limit:
            raise InputError(
                f"expected at most the model's {limit} positions (max_position_embeddings), found a sequence of "
                f"{length} tokens"
            )
        from bert_jax.modeling import forward  # imports Flax

        return forward.apply(self, params, inputs, options)

    def embed_hidden_state(
        self,
        params: Params,
        hidden_state: jax.Array,
        attention_mask: jax.Array | None = None,
        pooling_mask: jax.Array | None = None,
    ) -> jax.Array:
        """Return the sentence embeddings that the model would have if it ended at an earlier layer.

        Args:
            params: the canonical tree of head `sentence_embedding`.
            hidden_state: the output of the layer, `[B, S, D]`, from `BertOutput.hidden_states`.
            attention_mask: 1 for tokens, 0 for padding; None means no padding.
            pooling_mask: as for `Inputs`.

        Returns:
            float32 `[B, sentence_embedding_size]`.
        """
        from bert_jax.modeling import pooled_states  # imports Flax

        return pooled_states.embed_hidden_state(self, params, hidden_state, attention_mask, pooling_mask)

    def places_computed(self, length: int, sentences: int = 1, predictions: int | None = None) -> int:
        """Return the number of positions per row that the last layer computes if no last hidden state is requested.

        These are the positions that the head reads if layers are unrolled, else all.

        Args:
            length: S, the number of tokens in a row.
            sentences: number of examples in a row.
            predictions: P, the number of masked positions; None means all positions.
        """
        from bert_jax.modeling import forward  # imports Flax

        read = forward.positions_read(self)
        if read is None or (read.masked and predictions is None):
            return length
        return min(read.first * sentences + read.masked * (predictions or 0), length)
