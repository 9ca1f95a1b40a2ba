"""`EncoderConfig`, the architecture of an encoder as a frozen dataclass."""

import dataclasses

from bert_jax.config.attention import AttentionConfig
from bert_jax.config.embeddings import EmbeddingsConfig
from bert_jax.config.heads import HeadsConfig
from bert_jax.config.layers import FeedForwardConfig, LayerConfig, NormsConfig, StackConfig
from bert_jax.config.positions import AbsoluteConfig, PositionsConfig


@dataclasses.dataclass(frozen=True)
class EncoderConfig:
    """The architecture of an encoder. The defaults are those of BERT-base.

    Attributes:
        family: one of `bert_jax.families.FAMILIES`, which determines the layout of the model's files.
        vocab_size: rows of the word embedding.
        hidden_size: width of the residual stream.
        num_hidden_layers: number of encoder layers, counting each use of tied parameters.
        num_attention_heads: number of attention heads; must divide `inner_size` if `head_dim` is None.
        head_dim: width of an attention head, where the heads do not fill `inner_size`, as after pruning; None =
            inner_size / num_attention_heads.
        intermediate_size: width of the feed-forward layer.
        hidden_act: one of ACTIVATION_NAMES, such as `gelu` (erf, the 2018 release) or `gelu_tanh` (the small models).
        hidden_dropout_prob: dropout rate after embeddings, attention output and feed-forward output.
        attention_probs_dropout_prob: dropout rate on attention probabilities.
        max_position_embeddings: most tokens in a sequence.
        type_vocab_size: number of segment ids; 0 = no segment embedding.
        initializer_range: the parameter (not the standard deviation) of the truncated normal initialiser.
        layer_norm_eps: added to the variance in LayerNorm.
        pad_token_id: id of the padding token.
        embeddings: the embedding layer.
        positions: how the encoder knows where a token is.
        attention: the attention of a layer.
        feed_forward: the feed-forward block of a layer.
        norms: the norms of the encoder.
        layer: which blocks a layer has.
        stack: whose parameters the layers have.
        heads: the heads.
    """

    family: str = "bert"
    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    head_dim: int | None = None
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    pad_token_id: int = 0
    embeddings: EmbeddingsConfig = EmbeddingsConfig()
    positions: PositionsConfig = AbsoluteConfig()
    attention: AttentionConfig = AttentionConfig()
    feed_forward: FeedForwardConfig = FeedForwardConfig()
    norms: NormsConfig = NormsConfig()
    layer: LayerConfig = LayerConfig()
    stack: StackConfig = StackConfig()
    heads: HeadsConfig = HeadsConfig()

    @property
    def inner_size(self) -> int:
        """Return the width of attention and feed-forward blocks: that of a layer's bottleneck, or hidden_size."""
        return self.layer.inner_size(self.hidden_size)

    @property
    def value_input_size(self) -> int:
        """Return the width of what values are projections of."""
        return self.layer.value_input_size(self.hidden_size)

    @property
    def head_size(self) -> int:
        """Return the width of an attention head."""
        return self.head_dim or self.inner_size // self.num_attention_heads

    @property
    def attention_width(self) -> int:
        """Return the width of the queries: that of all heads together."""
        return self.head_size * self.num_attention_heads

    @property
    def key_value_heads(self) -> int:
        """Return the number of heads of keys and values."""
        return self.attention.num_key_value_heads or self.num_attention_heads

    @property
    def key_value_width(self) -> int:
        """Return the width of the keys, and of the values."""
        return self.head_size * self.key_value_heads

    @property
    def embedding_width(self) -> int:
        """Return the width of the word embeddings."""
        return self.embeddings.embedding_size or self.hidden_size

    @property
    def added_embedding_width(self) -> int:
        """Return the width of the embeddings of positions and token types."""
        return self.hidden_size if self.embeddings.word_projection else self.embedding_width

    @property
    def projects_embeddings(self) -> bool:
        """Return whether a dense layer projects the embeddings."""
        return (
            self.embedding_width != self.hidden_size
            or self.embeddings.embedding_projection
            or self.embeddings.trigram_input
        )

    @property
    def embedding_norm_width(self) -> int:
        """Return the width of what the LayerNorm of the embeddings reads."""
        return self.hidden_size if self.embeddings.norm_after_projection else self.added_embedding_width

    @property
    def relative_positions(self) -> bool:
        """Return whether attention scores depend on positions beside queries and keys."""
        return self.positions.relative or bool(self.attention.pos_att_type)

    @property
    def relative_span(self) -> int:
        """Return half the number of rows of disentangled attention's table: the distances on either side."""
        return self.attention.relative_span(self.max_position_embeddings)

    @property
    def parameter_rows(self) -> tuple[int, ...]:
        """Return for each layer the row of the stacked parameters that it uses: its own, unless layers are tied."""
        return self.stack.rows(self.num_hidden_layers)

    @property
    def num_parameter_rows(self) -> int:
        """Return the number of layers that have parameters of their own."""
        return self.stack.num_rows(self.num_hidden_layers)

    @property
    def has_experts(self) -> tuple[bool, ...]:
        """Return for each layer whether it has experts."""
        return self.stack.has_experts(self.num_hidden_layers)

    @property
    def windows(self) -> tuple[int | None, ...]:
        """Return the attention window of each layer; None for global layers."""
        return self.attention.windows(self.num_hidden_layers)
