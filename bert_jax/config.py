"""`BertConfig`, the architecture of a model as a frozen dataclass; named sizes; reading and writing `config.json`."""

import dataclasses
import json
from typing import Any, Self

from bert_jax import storage
from bert_jax.config_values import MAY_BE_NONE, check_embedding, check_groups, check_value
from bert_jax.errors import InputError, did_you_mean
from bert_jax.families import FAMILIES, family_of, whole_number
from bert_jax.model_files import check_keys
from bert_jax.model_files.config import NOT_CARRIED, config_keys
from bert_jax.model_files.labels import read_classes
from bert_jax.quantization_config import Quantization
from bert_jax.storage import hub

# (layers, hidden size, heads): base and large from Devlin et al. 2018 (arXiv:1810.04805) section 3, the others from
# Turc et al. 2019 (arXiv:1908.08962) table 1. The feed-forward size is always 4 times the hidden size.
SIZES: dict[str, tuple[int, int, int]] = {
    "tiny": (2, 128, 2),
    "mini": (4, 256, 4),
    "small": (4, 512, 8),
    "medium": (8, 512, 8),
    "base": (12, 768, 12),
    "large": (24, 1024, 16),
}

# Other names of ACTIVATION_NAMES in Hugging Face files.
_ACTIVATION_ALIASES = {
    "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu_python_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh", "gelu_accurate": "gelu_tanh", "gelu_python": "gelu", "swish": "silu",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class EmbeddingLayer:
    """A layer after the pooling of a sentence embedding model.

    Attributes:
        kind: `dense`, `layer_norm`, `normalize` or `dropout`.
        inputs: width of the input.
        features: width of the output.
        bias: whether a `dense` layer has a bias.
        activation: activation of a `dense` layer, one of `LAYER_ACTIVATIONS`.
        residual: whether a `dense` layer adds its input to its output, through a kernel if the widths differ.
        rate: rate of `dropout`.
    """

    kind: str
    inputs: int
    features: int
    bias: bool = True
    activation: str = "identity"
    residual: bool = False
    rate: float = 0.0


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
        head_dim: width of an attention head, where the heads do not fill `hidden_size`, as after pruning; None =
            hidden_size / num_attention_heads.
        intermediate_size: width of the feed-forward layer.
        embedding_size: width of the embeddings, which a dense layer projects to `hidden_size`; None = hidden_size.
        embedding_projection: whether there is such a dense layer also if the embeddings are as wide as `hidden_size`.
        hidden_act: one of ACTIVATION_NAMES, such as `gelu` (erf, the 2018 release) or `gelu_tanh` (the small models).
        gated: whether the feed-forward layer is act(gate) * up (Shazeer 2020, arXiv:2002.05202), or act(up).
        hidden_dropout_prob: dropout rate after embeddings, attention output and feed-forward output.
        attention_probs_dropout_prob: dropout rate on attention probabilities.
        classifier_dropout: dropout rate before a classifier; None means `hidden_dropout_prob`.
        qa_dropout: dropout rate before the span head.
        max_position_embeddings: most tokens in a sequence.
        position_embedding_type: `absolute` (learned), `sinusoidal` (fixed), or `rotary` (Su et al. 2021,
            arXiv:2104.09864), which rotates queries and keys instead of adding embeddings.
        position_offset: rows of the position table before the first position, one of which is for padding.
        rope_theta: base of rotary positions.
        local_rope_theta: base of rotary positions in local layers; None = `rope_theta`.
        relative_attention_buckets: buckets of distances between tokens, each with a bias of attention scores that all
            layers share (Raffel et al. 2019, arXiv:1910.10683, section 2.1); 0 = no relative positions.
        local_window: greatest distance to which a token attends in local layers; None = all layers are global.
        global_every: one layer in this number, from the first, is global.
        type_vocab_size: number of segment ids; 0 = no segment embedding.
        task_type_vocab_size: number of task ids (Sun et al. 2019, arXiv:1907.12412); 0 = no task embedding.
        embedding_norm: whether a LayerNorm follows the sum of the embeddings.
        norm: `layer_norm` or `rms_norm`.
        norm_placement: `post` (after each residual sum) or `pre` (before each block and after the last layer).
        first_layer_norm: whether the first attention block of a `pre` model has a LayerNorm.
        norm_bias: whether LayerNorm has a bias.
        attention_bias: whether the dense layers of attention have biases.
        mlp_bias: whether the feed-forward layers have biases.
        initializer_range: the parameter (not the standard deviation) of the truncated normal initialiser.
        layer_norm_eps: added to the variance in LayerNorm.
        pad_token_id: id of the padding token.
        pooler: whether there is a tanh pooler over the first token, for heads that do not need it.
        classifier_summary: the layer before a sequence classifier: the pooler (`pooler`), a dense layer of its own with
            an activation (`tanh`, `relu`, `gelu`), or the transform of the masked-LM head (`transform`), which then
            also comes before the heads for tokens and spans.
        choice_summary: the layer before a multiple-choice classifier, likewise.
        classifier_pooling: input of a `transform` summary: the first token (`cls`) or the `mean` of all tokens.
        drop_before_summary: whether there is also dropout before a sequence classifier's own dense layer.
        head_act: activation of the masked-LM head; None = `hidden_act`.
        head_bias: whether the dense layer of the masked-LM head has a bias.
        decoder_bias: whether the masked-LM head has a bias for each token.
        tie_word_embeddings: whether the output matrix of the masked-LM head is the word embedding.
        num_labels: number of classes of a classifier (1 for regression).
        id2label: names of the classes, or None.
        problem_type: type of a sequence classifier, one of PROBLEM_TYPES, or None.
        pooling: pooling of token vectors into a sentence embedding: one of `POOLINGS`, or several joined by `+`, whose
            vectors are concatenated; or one of `SPARSE_POOLINGS`.
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
    head_dim: int | None = None
    intermediate_size: int = 3072
    embedding_size: int | None = None
    embedding_projection: bool = False
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
    relative_attention_buckets: int = 0
    local_window: int | None = None
    global_every: int = 1
    type_vocab_size: int = 2
    task_type_vocab_size: int = 0
    embedding_norm: bool = True
    norm: str = "layer_norm"
    norm_placement: str = "post"
    first_layer_norm: bool = True
    norm_bias: bool = True
    attention_bias: bool = True
    mlp_bias: bool = True
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    pad_token_id: int = 0
    pooler: bool = True
    classifier_summary: str = "pooler"
    choice_summary: str = "pooler"
    classifier_pooling: str = "cls"
    drop_before_summary: bool = False
    head_act: str | None = None
    head_bias: bool = True
    decoder_bias: bool = True
    tie_word_embeddings: bool = True
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
        if self.head_dim is None and self.hidden_size % self.num_attention_heads:
            raise InputError(
                f"model config: num_attention_heads {self.num_attention_heads} must divide "
                f"hidden_size {self.hidden_size}"
            )
        if self.position_embedding_type == "rotary" and self.head_size % 2:
            raise InputError(f"model config: rotary positions need heads of an even size, found {self.head_size}")
        check_groups(self)
        check_embedding(self)
        if self.head_dim and self.head_dim * self.num_attention_heads == self.hidden_size:
            object.__setattr__(self, "head_dim", None)  # one value for one architecture
        if self.embedding_size == self.hidden_size:
            object.__setattr__(self, "embedding_size", None)  # likewise
        if self.id2label is not None and len(self.id2label) != self.num_labels:
            raise InputError(f"model config: num_labels is {self.num_labels} but id2label names {len(self.id2label)}")

    @property
    def head_size(self) -> int:
        """Return the width of an attention head."""
        return self.head_dim or self.hidden_size // self.num_attention_heads

    @property
    def attention_width(self) -> int:
        """Return the width of queries, keys and values: that of all heads together."""
        return self.head_size * self.num_attention_heads

    @property
    def embedding_width(self) -> int:
        """Return the width of the embeddings."""
        return self.embedding_size or self.hidden_size

    @property
    def poolings(self) -> tuple[str, ...]:
        """Return the poolings whose vectors are concatenated into a sentence embedding."""
        return tuple(self.pooling.split("+"))

    @property
    def sentence_embedding_size(self) -> int:
        """Return the width of a sentence embedding, or of a token's embedding in a model with one for each."""
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
    def windows(self) -> tuple[int | None, ...]:
        """Return the attention window of each layer; None for global layers."""
        return tuple(self.local_window if i % self.global_every else None for i in range(self.num_hidden_layers))

    @classmethod
    def named(cls, size: str, family: str = "bert", **changes: Any) -> Self:
        """Return the config of a named size (`SIZES`, or the family's own), with some fields changed.

        Raises:
            InputError: the size or the family is not known.
        """
        check_value("family", family, str)
        base = cls._of_family({}, family)
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
        return config.replace(carried=tuple((key, hf[key]) for key in hf if key not in NOT_CARRIED))

    @classmethod
    def _read(cls, hf: dict[str, Any], family: str, where: str) -> Self:
        count, names = read_classes(hf, where)
        classes = {} if count is None else {"num_labels": count, "id2label": names}
        quantization = Quantization.from_hf(hf.get("quantization_config"))
        return cls._of_family(hf, family, quantization=quantization, **classes)

    @classmethod
    def _of_family(cls, hf: dict[str, Any], family: str, **more: Any) -> Self:
        kind = FAMILIES[family]
        types = {field.name: field.type for field in dataclasses.fields(cls)}
        for field, key in (*kind.keys.items(), *kind.older_keys.items()):
            if key in hf and not (hf[key] is None and field in _MAY_BE_NULL):
                check_value(field, _activation(hf[key]) if field.endswith("_act") else hf[key], types[field], key)
        hf = kind.defaults | {key: value for key, value in hf.items() if value is not None}
        ours = {field: hf[key] for field, key in kind.keys.items() if key in hf} | kind.reads(hf) | dict(kind.fixed)
        if "head_dim" in hf:
            check_value("head_dim", hf["head_dim"], types["head_dim"], "head_dim")
            ours["head_dim"] = hf["head_dim"]
        if offset := kind.position_offset(hf):
            rows = whole_number(hf, "max_position_embeddings")
            if rows <= offset:
                raise InputError(f"max_position_embeddings: expected more than {offset} in a {family}, found {rows}")
            ours |= {"max_position_embeddings": rows - offset, "position_offset": offset}
        for name in ("hidden_act", "head_act"):
            if name in ours:
                ours[name] = _activation(ours[name])
        return cls(family=family, **ours | more)

    def to_hf(self, architecture: str = "") -> dict[str, Any]:
        """Return the config as a Hugging Face `config.json` dict.

        Args:
            architecture: the Hugging Face class; "" = that of the bare encoder.

        Raises:
            InputError: the family's `config.json` cannot describe this config.
        """
        kind = FAMILIES[self.family]
        hf: dict[str, Any] = {"architectures": [architecture or f"{kind.classes}Model"], "model_type": self.family}
        hf |= {key: getattr(self, field) for field, key in kind.keys.items()}
        fields = dataclasses.asdict(self)
        hf |= kind.writes(fields)
        hf["max_position_embeddings"] += kind.position_offset(fields)
        carried = dict(self.carried)
        for key in (kind.keys["hidden_act"], kind.keys.get("head_act", "")):
            if hf.get(key) == "gelu_tanh":
                hf[key] = "gelu_new"
            if key in carried and _activation(carried[key]) == _activation(hf.get(key)):
                hf[key] = carried[key]  # keep the name from the original file
        if self.head_dim:
            hf["head_dim"] = self.head_dim
        if "embedding_size" in kind.keys:
            hf["embedding_size"] = self.embedding_width
        hf["id2label"] = {str(i): name for i, name in enumerate(self.label_names)}
        hf["label2id"] = {name: i for i, name in enumerate(self.label_names)}
        if self.quantization is not None and self.quantization.stage == "quantized":
            hf["quantization_config"] = self.quantization.to_hf()
        self._check_said(BertConfig._read(hf, self.family, "config.json"))
        return carried | hf

    @property
    def label_names(self) -> tuple[str, ...]:
        """Return the names of the classes, by default LABEL_0, LABEL_1, ..."""
        return self.id2label or tuple(f"LABEL_{i}" for i in range(self.num_labels))

    def _check_said(self, back: "BertConfig") -> None:
        for field in dataclasses.fields(self):
            ours, theirs = getattr(self, field.name), getattr(back, field.name)
            if ours != theirs and field.name not in _NOT_IN_HF:
                raise InputError(
                    f"model config: {field.name}: expected {theirs!r}, as in every {self.family} in the Hugging Face "
                    f"layout, found {ours!r}"
                )

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


# Fields that a Hugging Face config.json does not have.
_NOT_IN_HF = (
    "pooler", "pooling", "pooling_skip", "embedding_layers", "normalize_embeddings", "id2label", "carried",
    "quantization",
)  # fmt: skip
_MAY_BE_NULL = (*MAY_BE_NONE, "pad_token_id")  # fields that may be null in config.json, which means "not set"


def _activation(name: Any) -> Any:
    return _ACTIVATION_ALIASES.get(name, name) if isinstance(name, str) else name
