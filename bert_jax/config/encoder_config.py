"""`EncoderConfig`, the architecture of an encoder as a frozen dataclass."""

import dataclasses

from bert_jax.config.parts import LayerConfig, StackConfig


@dataclasses.dataclass(frozen=True)
class EncoderConfig:
    """The architecture of an encoder. The defaults are those of BERT-base.

    Attributes:
        family: one of `bert_jax.families.FAMILIES`, which determines the layout of the model's files.
        vocab_size: rows of the word embedding.
        hidden_size: width of the residual stream.
        num_hidden_layers: number of encoder layers, counting each use of tied parameters.
        num_attention_heads: number of attention heads; must divide `inner_size` if `head_dim` is None.
        num_key_value_heads: number of heads of keys and values; each serves as many attention heads (Ainslie
            et al. 2023, arXiv:2305.13245); None = num_attention_heads.
        head_dim: width of an attention head, where the heads do not fill `inner_size`, as after pruning; None =
            inner_size / num_attention_heads.
        intermediate_size: width of the feed-forward layer.
        embedding_size: width of the embeddings, which a dense layer projects to `hidden_size`; None = hidden_size.
        embedding_projection: whether there is such a dense layer also if the embeddings are as wide as `hidden_size`.
        norm_after_projection: whether the LayerNorm of the embeddings follows this dense layer, which then has no bias.
        word_projection: whether this dense layer projects word embeddings alone, and the other embeddings, as wide as
            `hidden_size`, are added to its output.
        trigram_input: whether this dense layer reads the word embeddings of the next token, the token itself and the
            previous token (Sun et al. 2020, arXiv:2004.02984, section 3.4).
        hidden_act: one of ACTIVATION_NAMES, such as `gelu` (erf, the 2018 release) or `gelu_tanh` (the small models).
        gated: whether the feed-forward layer is act(gate) * up (Shazeer 2020, arXiv:2002.05202), or act(up).
        hidden_dropout_prob: dropout rate after embeddings, attention output and feed-forward output.
        attention_probs_dropout_prob: dropout rate on attention probabilities.
        classifier_dropout: dropout rate before a classifier; None means `hidden_dropout_prob`.
        qa_dropout: dropout rate before the span head.
        max_position_embeddings: most tokens in a sequence.
        position_embedding_type: `absolute` (learned), `sinusoidal` (fixed), `rotary` (Su et al. 2021,
            arXiv:2104.09864), which rotates queries and keys instead of adding embeddings, `alibi` (Press et al. 2021,
            arXiv:2108.12409), which lowers scores by the distance times a slope for each head, or `none`.
        position_offset: rows of the position table before the first position; one is for padding.
        rope_theta: base of rotary positions.
        local_rope_theta: base of rotary positions in local layers; None = `rope_theta`.
        rope_factor: divisor of positions before rotation (Chen et al. 2023, arXiv:2306.15595).
        rotary_interleaved: whether rotary positions rotate pairs of neighbouring coordinates; False = pairs of
            coordinates of the two halves of a head.
        rotary_value: whether rotary positions rotate values too.
        stored_rotation: whether files hold the speeds of rotary positions, which are then parameters that training
            leaves as they are.
        relative_attention_buckets: buckets of distances between tokens, each with a bias of attention scores that all
            layers share (Raffel et al. 2019, arXiv:1910.10683, section 2.1); 0 = no such bias.
        pos_att_type: terms of disentangled attention (He et al. 2020, arXiv:2006.03654, section 3.1): `c2p` (content to
            position), `p2c` (position to content), or both; () = plain attention.
        position_buckets: buckets of the distances of disentangled attention on either side, the farther ones on a log
            scale; 0 = each distance has an embedding.
        max_relative_positions: the distance of disentangled attention from which on all are alike; 0 =
            max_position_embeddings.
        share_att_key: whether disentangled attention projects positions by the layers for queries and keys.
        norm_rel_ebd: whether the embeddings of relative positions pass through a LayerNorm.
        conv_kernel_size: width of a convolution over the embeddings that is added to the output of the first layer; 0 =
            none.
        conv_act: activation of this convolution.
        local_window: greatest distance to which a token attends in local layers; None = all layers are global.
        global_every: one layer in this number, from the first, is global.
        attention_windows: greatest distance to which a token attends in each of the first layers, repeated for later
            layers; () = by local_window.
        max_global_tokens: most tokens of a sequence with global attention, for which attention has projections of its
            own (Beltagy et al. 2020, arXiv:2004.05150, section 3.1); 0 = no such attention.
        attention_type: `original_full`, or `block_sparse` (Zaheer et al. 2020, arXiv:2007.14062, section 2) in
            sequences longer than `longest_full`.
        block_size: tokens in a block of block-sparse attention.
        num_random_blocks: number of random blocks to which each block attends.
        type_vocab_size: number of segment ids; 0 = no segment embedding.
        task_type_vocab_size: number of task ids (Sun et al. 2019, arXiv:1907.12412); 0 = no task embedding.
        token_dropout: whether embeddings of the mask token are 0, and the others scaled as if they had been dropped out
            (Rives et al. 2021, doi:10.1073/pnas.2016239118).
        mask_token_id: id of the mask token, for `token_dropout`.
        rescale_embeddings: whether word embeddings are multiplied by the square root of `hidden_size`.
        embedding_norm: whether a LayerNorm follows the sum of the embeddings.
        norm: `layer_norm`, `rms_norm`, or `no_norm`, a scale and a bias alone (Sun et al. 2020, section 3.3); with
            no_norm, LayerNorms of heads are plain.
        norm_placement: `post` (after each residual sum) or `pre` (before each block and after the last layer).
        first_layer_norm: whether the first attention block of a `pre` model has a LayerNorm.
        norm_bias: whether LayerNorm has a bias.
        attention_bias: whether the dense layers of attention have biases.
        key_bias: whether those for keys, also of relative positions, have biases if the others do.
        qkv_bias: whether those for queries, keys and values have biases, if attention_bias is set.
        qk_norm: whether queries and keys pass through a LayerNorm each, over all heads together.
        attention_output_norm: whether a LayerNorm over attention's output and input comes before the residual sum.
        mlp_bias: whether the feed-forward layers have biases.
        mlp_up_bias: whether the layers up and gate have biases, if `mlp_bias`.
        mlp_dropout_at: where the feed-forward block has dropout: at the `output` of the layer down, at its `input`, or
            at `both`.
        initializer_range: the parameter (not the standard deviation) of the truncated normal initialiser.
        layer_norm_eps: added to the variance in LayerNorm.
        embedding_mlp_norm_eps: the same in the LayerNorms of the embeddings and of a layer's last feed-forward block;
            None = layer_norm_eps.
        pad_token_id: id of the padding token.
        sep_token_id: id of the separator, in families whose forward pass looks for the question; None = it does not.
        stack: whose parameters the layers have.
        layer: which blocks a layer has.
    """

    family: str = "bert"
    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    intermediate_size: int = 3072
    embedding_size: int | None = None
    embedding_projection: bool = False
    norm_after_projection: bool = False
    word_projection: bool = False
    trigram_input: bool = False
    hidden_act: str = "gelu"
    gated: bool = False
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    classifier_dropout: float | None = None
    qa_dropout: float = 0.0
    max_position_embeddings: int = 512
    position_embedding_type: str = "absolute"
    position_offset: int = 0
    rope_theta: float = 10000.0
    local_rope_theta: float | None = None
    rope_factor: float = 1.0
    rotary_interleaved: bool = False
    rotary_value: bool = False
    stored_rotation: bool = False
    relative_attention_buckets: int = 0
    pos_att_type: tuple[str, ...] = ()
    position_buckets: int = 0
    max_relative_positions: int = 0
    share_att_key: bool = False
    norm_rel_ebd: bool = False
    conv_kernel_size: int = 0
    conv_act: str = "tanh"
    local_window: int | None = None
    global_every: int = 1
    attention_windows: tuple[int, ...] = ()
    max_global_tokens: int = 0
    attention_type: str = "original_full"
    block_size: int = 64
    num_random_blocks: int = 3
    type_vocab_size: int = 2
    task_type_vocab_size: int = 0
    token_dropout: bool = False
    mask_token_id: int | None = None
    rescale_embeddings: bool = False
    embedding_norm: bool = True
    norm: str = "layer_norm"
    norm_placement: str = "post"
    first_layer_norm: bool = True
    norm_bias: bool = True
    attention_bias: bool = True
    key_bias: bool = True
    qkv_bias: bool = True
    qk_norm: bool = False
    attention_output_norm: bool = False
    mlp_bias: bool = True
    mlp_up_bias: bool = True
    mlp_dropout_at: str = "output"
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    embedding_mlp_norm_eps: float | None = None
    pad_token_id: int = 0
    sep_token_id: int | None = None
    stack: StackConfig = StackConfig()
    layer: LayerConfig = LayerConfig()

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
        return self.num_key_value_heads or self.num_attention_heads

    @property
    def key_value_width(self) -> int:
        """Return the width of the keys, and of the values."""
        return self.head_size * self.key_value_heads

    @property
    def embedding_width(self) -> int:
        """Return the width of the word embeddings."""
        return self.embedding_size or self.hidden_size

    @property
    def added_embedding_width(self) -> int:
        """Return the width of the embeddings of positions and token types."""
        return self.hidden_size if self.word_projection else self.embedding_width

    @property
    def projects_embeddings(self) -> bool:
        """Return whether a dense layer projects the embeddings."""
        return self.embedding_width != self.hidden_size or self.embedding_projection or self.trigram_input

    @property
    def embedding_norm_width(self) -> int:
        """Return the width of what the LayerNorm of the embeddings reads."""
        return self.hidden_size if self.norm_after_projection else self.added_embedding_width

    @property
    def relative_positions(self) -> bool:
        """Return whether attention scores depend on positions beside queries and keys."""
        return bool(self.relative_attention_buckets or self.pos_att_type) or self.position_embedding_type == "alibi"

    @property
    def relative_span(self) -> int:
        """Return half the number of rows of disentangled attention's table: the distances on either side."""
        return self.position_buckets or self.max_relative_positions or self.max_position_embeddings

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
        layers, given = range(self.num_hidden_layers), self.attention_windows
        usual = (self.local_window if i % self.global_every else None for i in layers)
        return tuple(given[i % len(given)] for i in layers) if given else tuple(usual)

    @property
    def longest_full(self) -> int | None:
        """Return the length up to which attention is not block-sparse; None if it never is."""
        return (5 + 2 * self.num_random_blocks) * self.block_size if self.attention_type == "block_sparse" else None
