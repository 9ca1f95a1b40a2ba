"""The modules of MobileBERT (Sun et al. 2020, arXiv:2004.02984, section 3): bottlenecks, embeddings, heads."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import nnx

from bert_jax.config import BertConfig
from bert_jax.config.part import expect
from bert_jax.families.mobilebert.parts import BottleneckConfig, ProjectedWordsConfig
from bert_jax.modeling.attention_mask import AttentionMask
from bert_jax.modeling.attention_plan import AttentionPlan
from bert_jax.modeling.compute import Compute
from bert_jax.modeling.dropout import dropout
from bert_jax.modeling.encoder_layer import EncoderLayer, constrained
from bert_jax.modeling.factored_embeddings import FactoredEmbeddings
from bert_jax.modeling.heads import VocabularyProjection
from bert_jax.modeling.layers import Dense, Embedding, LayerNorm
from bert_jax.modeling.positions import Positions
from bert_jax.modeling.registry import feed_forward_of


def _of(config: BertConfig) -> BottleneckConfig:
    return expect(config.layer, BottleneckConfig)


class Bottleneck(nnx.Module):
    """Dense layers, each followed by a norm, from the residual stream of width D to blocks of width I, and back."""

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        self.config = config
        size, inner = config.hidden_size, _of(config).intra_bottleneck_size
        self.input, self.input_norm = Dense(config, size, inner, rngs=rngs), LayerNorm(config, inner)
        if _of(config).key_query_shared_bottleneck:
            self.query_key, self.query_key_norm = Dense(config, size, inner, rngs=rngs), LayerNorm(config, inner)
        self.output, self.output_norm = Dense(config, inner, size, rngs=rngs), LayerNorm(config, size)

    def narrow(
        self, x: jax.Array, at: Positions | None, compute: Compute
    ) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        """Return the blocks' residual stream, `[B, S or P, I]`, and the inputs of queries and keys, and of values.

        Args:
            x: the residual stream `[B, S, D]`.
            at: the query positions; None = all.
            compute: compute options.
        """
        if _of(self.config).use_bottleneck_attention:
            y = self.input_norm(self.input(x, compute))
            return y if at is None else at.of(y), (y, y)
        of_keys = x
        if _of(self.config).key_query_shared_bottleneck:
            of_keys = self.query_key_norm(self.query_key(x, compute))
        return self.input_norm(self.input(x if at is None else at.of(x), compute)), (of_keys, x)

    def widen(
        self, y: jax.Array, x: jax.Array, dropout_key: jax.Array | None, compute: Compute, at: Positions | None
    ) -> jax.Array:
        """Add the output `y [B, S or P, I]` of the blocks to the residual stream: `[B, S or P, D]`."""
        residual = x if at is None else at.of(x)
        wide = dropout(self.output(y, compute), self.config.hidden_dropout_prob, dropout_key, at)
        return self.output_norm(residual + wide)


class BottleneckLayer(EncoderLayer):
    """A layer whose blocks are narrower than its input, with several feed-forward blocks.

    Only the bottleneck's output has dropout; without a bottleneck, attention and the last feed-forward block have it.
    """

    def __init__(self, config: BertConfig, rngs: nnx.Rngs, make_last_block: Callable[..., nnx.Module] | None = None):
        super().__init__(config, rngs, make_last_block)
        if _of(config).has_bottleneck:
            self.bottleneck = Bottleneck(config, rngs=rngs)

    def add_blocks(self, config: BertConfig, rngs: nnx.Rngs) -> None:
        self.num_between = _of(config).blocks_before_last
        for i in range(self.num_between):
            setattr(self, f"ffn_{i}", feed_forward_of(config)(config, rngs=rngs))

    def before_last_block(self, x: jax.Array, compute: Compute, at: Positions | None) -> jax.Array:
        for i in range(self.num_between):
            x = getattr(self, f"ffn_{i}")(x, None, compute, at)
        return x

    def __call__(
        self, x: jax.Array, plan: AttentionPlan, skip_norm: jax.Array | bool | None, dropout_key: jax.Array | None,
        compute: Compute,
    ) -> tuple[jax.Array, jax.Array | None, tuple[jax.Array, ...]]:  # fmt: skip
        if not hasattr(self, "bottleneck"):
            return super().__call__(x, plan, skip_norm, dropout_key, compute)
        keys = (None, None, None) if dropout_key is None else jax.random.split(dropout_key, 3)
        at = plan.query_positions
        y, inputs = self.bottleneck.narrow(x, at, compute)
        y, probabilities, projected = self.attention(y, plan, skip_norm, (keys[0], None), compute, inputs)
        y = self.mlp(self.before_last_block(constrained(y, plan), compute, at), None, compute, at)
        return constrained(self.bottleneck.widen(y, x, keys[2], compute, at), plan), probabilities, projected


class ProjectedWords(FactoredEmbeddings):
    """Word embeddings that are projected, optionally with those of neighbours, before other embeddings are added."""

    @property
    def read_width(self) -> int:
        return (3 if self._reads_trigrams else 1) * super().read_width

    @property
    def _reads_trigrams(self) -> bool:
        return expect(self.config.embeddings, ProjectedWordsConfig).trigram_input

    def words(self, input_ids: jax.Array, mask: AttentionMask, compute: Compute) -> jax.Array:
        x = super().words(input_ids, mask, compute)
        return self.projected(trigrams(x, mask) if self._reads_trigrams else x, compute)

    def after_dropout(self, x: jax.Array, compute: Compute) -> jax.Array:
        return x


def trigrams(x: jax.Array, mask: AttentionMask) -> jax.Array:
    """Return the embeddings of the next token, the token itself and the previous token, `[B, S, E] -> [B, S, 3 E]`.

    Outside the row, for other examples in packed rows, and for padding they are 0, so that padding changes no output.
    """
    previous, own, following = mask.neighbours(x, 1)
    return jnp.concatenate((following, own, previous), axis=-1)


class FirstState(nnx.Module):
    """A pooler without a dense layer: the state of the first token as it is."""

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        pass

    def __call__(self, x: jax.Array, compute: Compute) -> jax.Array:
        return x


class WideVocabularyProjection(VocabularyProjection):
    """A masked-LM head whose output matrix is the word embedding with further columns, which are never tied."""

    def add_decoder(self, config: BertConfig, rngs: nnx.Rngs) -> None:
        super().add_decoder(config, rngs)
        if further := config.transform_width - config.embedding_width:
            self.further_decoder = Embedding(config, config.vocab_size, further, rngs=rngs)

    def output_matrix(self, word_embeddings: jax.Array) -> jax.Array:
        table = super().output_matrix(word_embeddings)
        if not hasattr(self, "further_decoder"):
            return table
        return jnp.concatenate((table, self.further_decoder.table()), axis=1)
