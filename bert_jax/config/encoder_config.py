"""`EncoderConfig`, the architecture of an encoder as a frozen dataclass."""

import dataclasses

from bert_jax.config.attention import AttentionConfig
from bert_jax.config.embeddings import EmbeddingsConfig
from bert_jax.config.fields import Declared, setting
from bert_jax.config.heads import HeadsConfig
from bert_jax.config.layers import FeedForwardConfig, LayerConfig, NormsConfig, StackConfig
from bert_jax.config.positions import AbsoluteConfig, PositionsConfig
from bert_jax.config.values import ACTIVATION_NAMES
from bert_jax.families import FAMILIES


@dataclasses.dataclass(frozen=True)
class EncoderConfig(Declared):
    """The architecture of an encoder. The defaults are those of BERT-base."""

    family: str = setting("bert", "model family, which determines the file layout", choices=FAMILIES, shapes=True)
    vocab_size: int = setting(30522, "number of rows in the word embedding", least=1, shapes=True)
    hidden_size: int = setting(768, "width of the residual stream", least=1, shapes=True,
                               synonyms="d_model hidden_dim embed_dim dim")  # fmt: skip
    num_hidden_layers: int = setting(12, "number of layers, counting each use of tied parameters", least=0,
                                     shapes=True, recipe={"least": 1},
                                     synonyms="num_layers n_layers n_layer depth")  # fmt: skip
    num_attention_heads: int = setting(12, "number of attention heads; must divide hidden_size", least=1, shapes=True,
                                       synonyms="num_heads n_heads n_head")  # fmt: skip
    head_dim: int | None = setting(
        None, "width of an attention head; None = inner_size / num_attention_heads", least=1, shapes=True, recipe=False
    )
    intermediate_size: int = setting(3072, "width of the feed-forward layer", least=1, shapes=True,
                                     synonyms="d_ff ffn_dim mlp_dim")  # fmt: skip
    hidden_act: str = setting("gelu", "activation of the feed-forward layer", choices=ACTIVATION_NAMES, recipe=True,
                              synonyms="activation activation_function hidden_activation")  # fmt: skip
    hidden_dropout_prob: float = setting(
        0.1, "dropout rate after embeddings, attention output and feed-forward output", least=0, below=1, recipe=True,
        synonyms="dropout dropout_rate hidden_dropout")  # fmt: skip
    attention_probs_dropout_prob: float = setting(0.1, "dropout rate of attention probabilities", least=0, below=1,
                                                  recipe=True, synonyms="attention_dropout attn_dropout")  # fmt: skip
    max_position_embeddings: int = setting(512, "maximum number of tokens in a sequence", least=1, shapes=True,
                                           synonyms="max_positions n_positions")  # fmt: skip
    type_vocab_size: int = setting(2, "number of segment ids; 0 = no segment embedding", least=0, shapes=True)
    initializer_range: float = setting(0.02, "scale of the truncated normal initializer", least=0, recipe=True)
    layer_norm_eps: float = setting(1e-12, "added to LayerNorm's variance", least=0, recipe={"least": None, "above": 0})
    pad_token_id: int = setting(0, "id of the padding token", least=0)
    embeddings: EmbeddingsConfig = setting(EmbeddingsConfig(), "the embedding layer")
    positions: PositionsConfig = setting(AbsoluteConfig(), "how token positions are encoded")
    attention: AttentionConfig = setting(AttentionConfig(), "the attention of a layer")
    feed_forward: FeedForwardConfig = setting(FeedForwardConfig(), "the feed-forward block of a layer")
    norms: NormsConfig = setting(NormsConfig(), "the norms of the encoder")
    layer: LayerConfig = setting(LayerConfig(), "which blocks a layer has")
    stack: StackConfig = setting(StackConfig(), "which parameters each layer has")
    heads: HeadsConfig = setting(HeadsConfig(), "the heads")

    @property
    def inner_size(self) -> int:
        """Return the width of attention and feed-forward blocks: a layer's bottleneck width, or hidden_size."""
        return self.layer.inner_size(self.hidden_size)

    @property
    def value_input_size(self) -> int:
        """Return the input width of the value projection."""
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
        return self.embeddings.width(self.hidden_size)

    @property
    def relative_positions(self) -> bool:
        """Return whether attention scores depend on positions, not only on queries and keys."""
        return self.positions.relative or self.attention.relative

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
