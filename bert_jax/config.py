"""`BertConfig`, the architecture of a model as a frozen dataclass; named sizes; reading and writing `config.json`."""

import dataclasses
import json
from typing import Any, Self

from bert_jax import storage
from bert_jax.config_json import check_said, read_fields, write_fields
from bert_jax.config_values import (
    MAY_BE_NONE,
    SIZES,
    EmbeddingLayer,
    check_fields_together,
    check_value,
    shortest_period,
)
from bert_jax.errors import InputError, did_you_mean
from bert_jax.families import FAMILIES, family_of
from bert_jax.model_files import check_keys
from bert_jax.model_files.config import NOT_CARRIED, config_keys
from bert_jax.model_files.labels import read_classes
from bert_jax.quantization_config import Quantization
from bert_jax.storage import hub


@dataclasses.dataclass(frozen=True)
class BertConfig:
    """The architecture of a model; equal configs have equal parameter trees. The defaults are those of BERT-base.

    Attributes:
        family: one of `bert_jax.families.FAMILIES`, which determines the layout of the model's files.
        vocab_size: rows of the word embedding.
        hidden_size: width of the residual stream.
        num_hidden_layers: number of encoder layers, counting each use of tied parameters.
        num_hidden_groups: number of groups of layers with tied parameters (Lan et al. 2020, arXiv:1909.11942, section
            3.1): a group's layers are used in turn, again and again; 0 = every layer has its own parameters.
        inner_group_num: number of layers in a group; must divide `num_hidden_layers`.
        num_attention_heads: number of attention heads; must divide `hidden_size` if `head_dim` is None.
        num_key_value_heads: number of heads of keys and values, each of which serves as many attention heads (Ainslie
            et al. 2023, arXiv:2305.13245); None = num_attention_heads.
        head_dim: width of an attention head, where the heads do not fill `hidden_size`, as after pruning; None =
            hidden_size / num_attention_heads.
        intermediate_size: width of the feed-forward layer.
        embedding_size: width of the embeddings, which a dense layer projects to `hidden_size`; None = hidden_size.
        embedding_projection: whether there is such a dense layer also if the embeddings are as wide as `hidden_size`.
        norm_after_projection: whether the LayerNorm of the embeddings follows this dense layer, which then has no bias.
        hidden_act: one of ACTIVATION_NAMES, such as `gelu` (erf, the 2018 release) or `gelu_tanh` (the small models).
        gated: whether the feed-forward layer is act(gate) * up (Shazeer 2020, arXiv:2002.05202), or act(up).
        num_experts: experts of a feed-forward block in every `moe_every_n_layers`-th layer, from the second (Shazeer et
            al. 2017, arXiv:1701.06538); 0 = no layer has experts.
        moe_top_k: number of experts that a token uses.
        moe_every_n_layers: number of layers from one with experts to the next.
        hidden_dropout_prob: dropout rate after embeddings, attention output and feed-forward output.
        attention_probs_dropout_prob: dropout rate on attention probabilities.
        classifier_dropout: dropout rate before a classifier; None means `hidden_dropout_prob`.
        qa_dropout: dropout rate before the span head.
        max_position_embeddings: most tokens in a sequence.
        position_embedding_type: `absolute` (learned), `sinusoidal` (fixed), `rotary` (Su et al. 2021,
            arXiv:2104.09864), which rotates queries and keys instead of adding embeddings, `alibi` (Press et al. 2021,
            arXiv:2108.12409), which lowers scores by the distance times a slope for each head, or `none`.
        position_offset: rows of the position table before the first position, one of which is for padding.
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
        norm: `layer_norm` or `rms_norm`.
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
        pad_token_id: id of the padding token.
        sep_token_id: id of the separator, in families whose forward pass looks for the question; None = it does not.
        pooler: whether there is a tanh pooler over the first token, for heads that do not need it.
        unread_pooler: whether masked LM, sequence and token classifiers have a pooler that they do not read.
        classifier_summary: the layer before a sequence classifier: the pooler (`pooler`), a dense layer of its own with
            an activation (`tanh`, `relu`, `gelu`, or that of the encoder, `hidden_act`), or the transform of the
            masked-LM head (`transform`), which then also comes before the heads for tokens and spans.
        choice_summary: the layer before a multiple-choice classifier, likewise.
        classifier_pooling: input of a summary other than the pooler: the first token (`cls`) or the `mean` of all
            tokens; `late` = all tokens, and the mean of their logits.
        pooler_dropout: dropout rate before a classifier's own dense layer.
        span_head: `dense`, or `feed_forward`: a feed-forward block before the dense layer, whose logits leave out the
            tokens of the question.
        drop_before_summary: whether there is also dropout before a sequence classifier's own dense layer.
        head_transform: whether the masked-LM head has a dense layer, an activation and a LayerNorm before its output
            matrix.
        head_act: activation of the masked-LM head; None = `hidden_act`.
        head_bias: whether the dense layer of the masked-LM head has a bias.
        decoder_bias: whether the masked-LM head has a bias for each token.
        tie_word_embeddings: whether the output matrix of the masked-LM head is the word embedding.
        contact_head: whether the encoder has a logistic regression over its attention maps that predicts contacts of a
            protein's residues (Rao et al. 2021, doi:10.1101/2020.12.15.422761).
        discriminator_norm: whether the head for replaced tokens adds the first token's state to that of each token,
            with a LayerNorm, before its dense layer.
        legacy: whether a DeBERTa's files name the tensors of the masked-LM head as BERT's.
        num_labels: number of classes of a classifier (1 for regression).
        id2label: names of the classes, or None.
        problem_type: type of a sequence classifier, one of PROBLEM_TYPES, or None.
        pooling: pooling of token vectors into a sentence embedding: one of `POOLINGS`, or several joined by `+`, whose
            vectors are concatenated.
        pooling_skip: number of leading tokens that are not pooled, such as those of a prompt.
        embedding_layers: layers after the pooling.
        normalize_embeddings: whether a sentence embedding is scaled to unit length.
        quantization: how parameters are quantized, or None.
        carried: other keys and values of the `config.json` that was read, which `to_hf` writes again. They do not
            affect the model and are ignored in comparisons.
    """

    family: str = "bert"
    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_hidden_groups: int = 0
    inner_group_num: int = 1
    num_attention_heads: int = 12
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    intermediate_size: int = 3072
    embedding_size: int | None = None
    embedding_projection: bool = False
    norm_after_projection: bool = False
    hidden_act: str = "gelu"
    gated: bool = False
    num_experts: int = 0
    moe_top_k: int = 2
    moe_every_n_layers: int = 2
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
    pad_token_id: int = 0
    sep_token_id: int | None = None
    pooler: bool = True
    unread_pooler: bool = False
    classifier_summary: str = "pooler"
    choice_summary: str = "pooler"
    classifier_pooling: str = "cls"
    pooler_dropout: float = 0.0
    span_head: str = "dense"
    drop_before_summary: bool = False
    head_transform: bool = True
    head_act: str | None = None
    head_bias: bool = True
    decoder_bias: bool = True
    tie_word_embeddings: bool = True
    contact_head: bool = False
    discriminator_norm: bool = False
    legacy: bool = True
    num_labels: int = 2
    id2label: tuple[str, ...] | None = None
    problem_type: str | None = None
    pooling: str = "mean"
    pooling_skip: int = 0
    embedding_layers: tuple[EmbeddingLayer, ...] = ()
    normalize_embeddings: bool = True
    quantization: Quantization | None = None
    carried: tuple[tuple[str, Any], ...] = dataclasses.field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not None or field.name not in MAY_BE_NONE:
                check_value(field.name, value, field.type)
        check_fields_together(self)
        if self.head_dim and self.head_dim * self.num_attention_heads == self.hidden_size:
            object.__setattr__(self, "head_dim", None)  # one value for one architecture
        if self.embedding_size == self.hidden_size:
            object.__setattr__(self, "embedding_size", None)  # likewise
        if self.num_key_value_heads == self.num_attention_heads:
            object.__setattr__(self, "num_key_value_heads", None)  # likewise
        object.__setattr__(self, "attention_windows", shortest_period(self.windows) if self.attention_windows else ())
        if self.id2label is not None and len(self.id2label) != self.num_labels:
            raise InputError(f"model config: num_labels is {self.num_labels} but id2label names {len(self.id2label)}")

    @property
    def head_size(self) -> int:
        """Return the width of an attention head."""
        return self.head_dim or self.hidden_size // self.num_attention_heads

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
        """Return the width of the embeddings."""
        return self.embedding_size or self.hidden_size

    @property
    def relative_positions(self) -> bool:
        """Return whether attention scores depend on positions beside queries and keys."""
        return bool(self.relative_attention_buckets or self.pos_att_type) or self.position_embedding_type == "alibi"

    @property
    def relative_span(self) -> int:
        """Return half the number of rows of disentangled attention's table: the distances on either side."""
        return self.position_buckets or self.max_relative_positions or self.max_position_embeddings

    @property
    def poolings(self) -> tuple[str, ...]:
        """Return the poolings whose vectors are concatenated into a sentence embedding."""
        return tuple(self.pooling.split("+"))

    @property
    def sentence_embedding_size(self) -> int:
        """Return the width of a sentence embedding."""
        pooled = self.hidden_size * len(self.poolings)
        return self.embedding_layers[-1].features if self.embedding_layers else pooled

    @property
    def parameter_rows(self) -> tuple[int, ...]:
        """Return for each layer the row of the stacked parameters that it uses: its own, unless layers are tied."""
        if not self.num_hidden_groups:
            return tuple(range(self.num_hidden_layers))
        uses, inner = self.num_hidden_layers // self.inner_group_num, range(self.inner_group_num)
        groups = (int(use / (uses / self.num_hidden_groups)) for use in range(uses))
        return tuple(group * self.inner_group_num + i for group in groups for i in inner)

    @property
    def num_parameter_rows(self) -> int:
        """Return the number of layers that have parameters of their own."""
        return self.num_hidden_groups * self.inner_group_num or self.num_hidden_layers

    @property
    def has_experts(self) -> tuple[bool, ...]:
        """Return for each layer whether it has experts."""
        layers = range(self.num_hidden_layers)
        return tuple(self.num_experts > 0 and i % self.moe_every_n_layers == 1 for i in layers)

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

    @classmethod
    def named(cls, size: str, family: str = "bert", **changes: Any) -> Self:
        """Return the config of a named size (`SIZES`, or the family's own), with some fields changed.

        Raises:
            InputError: the size or the family is not known.
        """
        check_value("family", family, str)
        base = cls._of_family(dict(FAMILIES[family].fresh), family)
        sizes = {name: (*shape, 4 * shape[1]) for name, shape in SIZES.items()} | dict(FAMILIES[family].sizes)
        if size not in sizes:
            raise InputError(f"model size {size!r} is not known{did_you_mean(size, sizes)}")
        names = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size")
        shape: dict[str, Any] = dict(zip(names, sizes[size], strict=True))
        if size not in FAMILIES[family].sizes:
            shape["embedding_size"] = None  # only a family's own sizes have narrower embeddings
        # The position offset may depend on the id of padding.
        offset = FAMILIES[family].position_offset({"pad_token_id": changes.get("pad_token_id", base.pad_token_id)})
        return base.replace(**shape | {"position_offset": offset} | changes)

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed."""
        return dataclasses.replace(self, **changes)

    @classmethod
    def from_hf(cls, hf: dict[str, Any], where: str = "config.json") -> Self:
        """Return the config that a Hugging Face `config.json` (as a dict) describes.

        Keys are checked against `bert_jax.model_files.config`: refused keys are an error, unknown keys a warning.

        Raises:
            InputError: the family is not known, or a value has the wrong type or range or is not supported.
        """
        family = family_of(hf, where)
        check_keys(hf, config_keys(family), where)
        try:
            config = cls._read(hf, family, where)
        except InputError as error:
            raise InputError(f"{where}: {error}") from None
        replaced = {*NOT_CARRIED, *FAMILIES[family].not_carried}
        return config.replace(carried=tuple((key, hf[key]) for key in hf if key not in replaced))

    @classmethod
    def _read(cls, hf: dict[str, Any], family: str, where: str) -> Self:
        count, names = read_classes(hf, where)
        classes = {} if count is None else {"num_labels": count, "id2label": names}
        quantization = Quantization.from_hf(hf.get("quantization_config"))
        return cls._of_family(hf, family, quantization=quantization, **classes)

    @classmethod
    def _of_family(cls, hf: dict[str, Any], family: str, **more: Any) -> Self:
        types = {field.name: field.type for field in dataclasses.fields(cls)}
        return cls(family=family, **read_fields(hf, family, types) | more)

    def to_hf(self, architecture: str = "") -> dict[str, Any]:
        """Return the config as a Hugging Face `config.json` dict.

        Args:
            architecture: the Hugging Face class; "" = that of the bare encoder.

        Raises:
            InputError: the family's `config.json` cannot describe this config.
        """
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        hf = write_fields(fields, architecture, carried := dict(self.carried))
        hf["id2label"] = {str(i): name for i, name in enumerate(self.label_names)}
        hf["label2id"] = {name: i for i, name in enumerate(self.label_names)}
        if self.quantization is not None and self.quantization.stage == "quantized":
            hf["quantization_config"] = self.quantization.to_hf()
        check_said(self, BertConfig._read(hf, self.family, "config.json"))
        return carried | hf

    @property
    def label_names(self) -> tuple[str, ...]:
        """Return the names of the classes, by default LABEL_0, LABEL_1, ..."""
        return self.id2label or tuple(f"LABEL_{i}" for i in range(self.num_labels))

    @classmethod
    def from_pretrained(cls, path: storage.PathLike, **changes: Any) -> Self:
        """Read the `config.json` of a model directory, with some fields changed.

        Args:
            path: a directory (local or `gs://`), or a name on the hub (`bert_jax.storage.hub.locate`).
            changes: fields by name.

        Raises:
            InputError: as `from_json_file`.
        """
        if "num_labels" in changes:
            changes.setdefault("id2label", None)
        return cls.from_json_file(hub.locate(path) / "config.json").replace(**changes)

    @classmethod
    def from_json_file(cls, path: storage.PathLike) -> Self:
        """Read a Hugging Face `config.json`. Raises InputError when it is missing, not JSON or not a BERT."""
        return cls.from_hf(storage.read_json(path), where=str(path))

    def to_json_file(self, path: storage.PathLike, architecture: str = "") -> None:
        """Write a Hugging Face `config.json` atomically."""
        storage.write_atomically(path, json.dumps(self.to_hf(architecture), indent=2, sort_keys=True) + "\n")
