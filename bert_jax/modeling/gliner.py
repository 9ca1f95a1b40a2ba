"""The head of a GLiNER: a score for each span of words and each entity type.

Zaratiana et al. 2023 (arXiv:2311.08526), section 2; spans as in mode markerV0 of github.com/urchade/GLiNER.
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from bert_jax.config import BertConfig
from bert_jax.config.gliner import GlinerConfig
from bert_jax.errors import InputError
from bert_jax.modeling.compute import Compute
from bert_jax.modeling.dropout import dropout
from bert_jax.modeling.layers import Dense
from bert_jax.modeling.positions import gather_positions
from bert_jax.modeling.task_heads import Head, HeadInputs, Outputs

_NO_ENTITY = -1e9  # logit of a span or a type that is padding


class GlinerDense(Dense):
    """A dense layer initialised as in PyTorch: uniform within 1 / sqrt(fan_in).

    The encoder's narrow initializer would make the signal vanish, as the head has neither LayerNorms nor residuals.
    """

    def __init__(self, config: BertConfig, features_in: int, features_out: int, *, fan_in: int = 0, rngs: nnx.Rngs):
        super().__init__(config, features_in, features_out, rngs=rngs)
        bound = (fan_in or features_in) ** -0.5
        self.kernel.set_value(
            jax.random.uniform(rngs.params(), (features_in, features_out), minval=-bound, maxval=bound)
        )


class GlinerFeedForward(nnx.Module):
    """Two dense layers, `[..., inputs] -> [..., D]`, with ReLU and dropout between them."""

    def __init__(self, config: BertConfig, inputs: int, features: int, *, rngs: nnx.Rngs):
        self.up = GlinerDense(config, inputs, 4 * features, rngs=rngs)
        self.down = GlinerDense(config, 4 * features, features, rngs=rngs)

    def __call__(self, x: jax.Array, rate: float, key: jax.Array | None, compute: Compute) -> jax.Array:
        return self.down(dropout(jax.nn.relu(self.up(x, compute)), rate, key), compute)


class LstmCell(nnx.Module):
    """An LSTM of one layer and direction, `[B, W, inputs] -> [B, W, hidden]`; gates as in PyTorch."""

    def __init__(self, config: BertConfig, inputs: int, hidden: int, *, rngs: nnx.Rngs):
        self.input = GlinerDense(config, inputs, 4 * hidden, fan_in=hidden, rngs=rngs)
        self.recurrent = GlinerDense(config, hidden, 4 * hidden, rngs=rngs)

    def __call__(self, x: jax.Array, is_word: jax.Array, reverse: bool, compute: Compute) -> jax.Array:
        """Run over the words of each row; words of padding change no state, and their outputs are 0.

        Args:
            x: vectors of words, `[B, W, inputs]`.
            is_word: bool `[B, W]`, False for padding.
            reverse: whether to run from the last word to the first.
            compute: compute options.
        """

        def step(state: tuple[jax.Array, jax.Array], inputs: tuple[jax.Array, jax.Array]) -> Any:
            projected, present = inputs  # [B, 4 * hidden], [B, 1]
            hidden, cell = state
            input_gate, forget, candidate, out = jnp.split(projected + self.recurrent(hidden, compute), 4, axis=-1)
            new_cell = jax.nn.sigmoid(forget) * cell + jax.nn.sigmoid(input_gate) * jnp.tanh(candidate)
            new = jnp.where(present, jax.nn.sigmoid(out) * jnp.tanh(new_cell), hidden)
            return (new, jnp.where(present, new_cell, cell)), jnp.where(present, new, 0.0)

        projected = self.input(x, compute).swapaxes(0, 1)
        start = jnp.zeros((x.shape[0], projected.shape[-1] // 4), projected.dtype)
        outputs: jax.Array
        _, outputs = jax.lax.scan(step, (start, start), (projected, is_word.T[..., None]), reverse=reverse)
        return outputs.swapaxes(0, 1)


class BidirectionalLstm(nnx.Module):
    """A layer of the LSTM, `[B, W, D] -> [B, W, D]`: both directions, half of the columns each."""

    def __init__(self, config: BertConfig, features: int, *, rngs: nnx.Rngs):
        self.forward = LstmCell(config, features, features // 2, rngs=rngs)
        self.backward = LstmCell(config, features, features // 2, rngs=rngs)

    def __call__(self, x: jax.Array, is_word: jax.Array, compute: Compute) -> jax.Array:
        sides = (self.forward(x, is_word, False, compute), self.backward(x, is_word, True, compute))
        return jnp.concatenate(sides, axis=-1)


class GlinerHead(nnx.Module):
    """Scores of spans for entity types: `[B, S, hidden] -> [B, W, K, T]` logits in float32."""

    def __init__(self, config: BertConfig, gliner: GlinerConfig, *, rngs: nnx.Rngs):
        self.config, size = gliner, gliner.hidden_size
        if size != config.hidden_size:
            self.projection = GlinerDense(config, config.hidden_size, size, rngs=rngs)
        for number in range(gliner.num_rnn_layers):
            setattr(self, f"lstm_{number}", BidirectionalLstm(config, size, rngs=rngs))
        self.start = GlinerFeedForward(config, size, size, rngs=rngs)
        self.end = GlinerFeedForward(config, size, size, rngs=rngs)
        self.span = GlinerFeedForward(config, 2 * size, size, rngs=rngs)
        self.type = GlinerFeedForward(config, size, size, rngs=rngs)

    def __call__(
        self,
        x: jax.Array,
        word_positions: jax.Array,
        type_positions: jax.Array,
        key: jax.Array | None,
        compute: Compute,
    ) -> jax.Array:
        """Return the logits of spans that begin at each word and have 1 to K words, for each type.

        Args:
            x: the last hidden state, `[B, S, hidden]`.
            word_positions: `[B, W]`, the token of each word; 0 for padding, which comes last.
            type_positions: `[B, T]`, the token of each entity type; 0 for padding.
            key: dropout key; None means no dropout.
            compute: compute options.
        """
        exact = Compute(platform=compute.platform)  # float32, as in all heads
        x, rate = x.astype(jnp.float32), self.config.dropout
        keys: Any = (None,) * 4 if key is None else jax.random.split(key, 4)
        words, types = (gather_positions(x, at) for at in (word_positions, type_positions))
        if hasattr(self, "projection"):
            words, types = self.projection(words, exact), self.projection(types, exact)
        is_word = word_positions > 0
        for number in range(self.config.num_rnn_layers):
            words = getattr(self, f"lstm_{number}")(words, is_word, exact)
        types = self.type(types, rate, keys[0], exact)
        starts = jax.nn.relu(self.start(words, rate, keys[1], exact))
        ends = jax.nn.relu(self.end(words, rate, keys[2], exact))
        logits = self._spans(starts, ends, types, keys[3], exact)
        width = jnp.arange(self.config.max_width)
        ends_inside = jnp.arange(words.shape[1])[:, None] + width < is_word.sum(axis=1)[:, None, None]
        known = ends_inside[..., None] & (type_positions > 0)[:, None, None]
        return jnp.where(known, logits, _NO_ENTITY)

    def _spans(
        self, starts: jax.Array, ends: jax.Array, types: jax.Array, key: jax.Array | None, compute: Compute
    ) -> jax.Array:
        """Return the logits `[B, W, K, T]` of spans from their first and last words `[B, W, D]` and types `[B, T, D]`.

        To save operations, the first layer of the span's feed-forward block is applied to words instead of spans, and
        its second layer is multiplied by the types first, then by the spans. The results are the same.
        """
        size, most = starts.shape[-1], self.config.max_width
        precision = jax.lax.Precision.HIGHEST
        kernel, second = self.span.up.kernel[...], self.span.down
        begin = jnp.matmul(starts, kernel[:size], precision=precision) + self.span.up.bias[...]
        stop = jnp.matmul(ends, kernel[size:], precision=precision)
        stop = jnp.pad(stop, ((0, 0), (0, most), (0, 0)))
        columns = jnp.einsum("fd,btd->bft", second.kernel[...], types, precision=precision)
        constant = jnp.einsum("d,btd->bt", second.bias[...], types, precision=precision)

        def of_width(width: jax.Array) -> jax.Array:
            inner = jax.nn.relu(begin + jax.lax.dynamic_slice_in_dim(stop, width, begin.shape[1], axis=1))
            inner = dropout(inner, self.config.dropout, None if key is None else jax.random.fold_in(key, width))
            return jnp.einsum("bwf,bft->bwt", inner, columns, precision=precision)

        logits = jax.lax.map(jax.checkpoint(of_width), jnp.arange(most))  # one width at a time, to save memory
        return jnp.moveaxis(logits, 0, 2) + constant[:, None, None]


class ZeroShotNerHead(Head):
    """Zero-shot NER: a logit for each span of words and each entity type."""

    def build(self, config: BertConfig, rngs: nnx.Rngs) -> dict[str, nnx.Module]:
        assert config.gliner is not None  # `Bert` checks it
        return {"gliner": GlinerHead(config, config.gliner, rngs=rngs)}

    def __call__(self, encoded: HeadInputs) -> Outputs:
        words, types = encoded.inputs.word_positions, encoded.inputs.type_positions
        if words is None or types is None:
            raise InputError("zero_shot_ner: expected word_positions and type_positions, found none")
        gliner = encoded.module.gliner
        return {"logits": gliner(encoded.states, words, types, encoded.dropout_key, encoded.compute)}
