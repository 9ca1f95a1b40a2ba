"""`BertConfig`, the architecture of a model as a frozen dataclass; named sizes; reading and writing `config.json`."""

import dataclasses
import json
from typing import Any, Self

from bert_jax import storage
from bert_jax.errors import InputError, did_you_mean, printable
from bert_jax.families import FAMILIES, family_of, whole_number
from bert_jax.model_files import check_keys
from bert_jax.model_files.config import NOT_CARRIED, config_keys
from bert_jax.model_files.labels import MOST_CLASSES, read_classes
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
ACTIVATIONS = (
    "gelu", "gelu_tanh", "relu", "silu", "tanh", "gelu_10", "quick_gelu", "leaky_relu", "linear", "mish", "relu2",
    "relu6", "sigmoid",
)  # fmt: skip
PROBLEM_TYPES = ("single_label_classification", "multi_label_classification", "regression")
POOLINGS = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
LAYER_ACTIVATIONS = ("identity", "tanh", "sigmoid", "relu", "gelu", "silu", "elu", "leaky_relu", "softplus", "mish")
SUMMARIES = ("pooler", "tanh", "relu", "gelu", "transform")
CHOICES: dict[str, tuple[str, ...]] = {
    "family": tuple(FAMILIES),
    "hidden_act": ACTIVATIONS,
    "head_act": ACTIVATIONS,
    "position_embedding_type": ("absolute", "sinusoidal", "rotary"),
    "norm": ("layer_norm", "rms_norm"),
    "norm_placement": ("post", "pre"),
    "classifier_summary": SUMMARIES,
    "choice_summary": SUMMARIES,
    "classifier_pooling": ("cls", "mean"),
    "problem_type": PROBLEM_TYPES,
}
_POSITIVE = (
    "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "embedding_size",
    "max_position_embeddings", "num_labels", "local_window", "global_every",
)  # fmt: skip
_MAY_BE_NONE = ("head_act", "problem_type", "classifier_dropout", "embedding_size", "local_window", "local_rope_theta")

# Names that Hugging Face files use for one of ACTIVATIONS.
_ACTIVATION_ALIASES = {
    "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu_python_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh", "gelu_accurate": "gelu_tanh", "gelu_python": "gelu", "swish": "silu",
}  # fmt: skip
_LARGEST_SIZE = 2**31 - 1


@dataclasses.dataclass(frozen=True)
class EmbeddingLayer:
    """A layer between the pooling of a sentence embedding and the vector that comes out.

    Attributes:
        kind: `dense`, `layer_norm`, `normalize` or `dropout`.
        inputs: width of what goes in.
        features: width of what comes out.
        bias: of `dense`: whether it has one.
        activation: of `dense`: one of `LAYER_ACTIVATIONS`.
        residual: of `dense`: whether the input is added to the output, through a kernel where widths differ.
        rate: of `dropout`.
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
    """One architecture; equal configs have equal parameter trees. The defaults are BERT-base's.

    Attributes:
        family: one of `bert_jax.families.FAMILIES`: whose names and `config.json` its files have.
        vocab_size: rows of the word embedding.
        hidden_size: width of the residual stream.
        num_hidden_layers: encoder layers.
        num_attention_heads: heads; must divide `hidden_size`.
        intermediate_size: width of the feed-forward layer.
        embedding_size: width of the embeddings, which a dense layer brings to `hidden_size`; None: they have it.
        hidden_act: one of ACTIVATIONS, such as `gelu` (erf, the 2018 release) or `gelu_tanh` (the small models).
        gated: whether the feed-forward layer is act(gate) * up (Shazeer 2020, arXiv:2002.05202), or act(up).
        hidden_dropout_prob: dropout rate after embeddings, attention output and feed-forward output.
        attention_probs_dropout_prob: dropout rate on attention probabilities.
        classifier_dropout: dropout rate before a classifier; None means `hidden_dropout_prob`.
        qa_dropout: dropout rate before the span head.
        max_position_embeddings: longest sequence the model takes, in tokens.
        position_embedding_type: `absolute` (learned), `sinusoidal` (fixed), or `rotary` (Su et al. 2021,
            arXiv:2104.09864), which turns queries and keys instead.
        position_offset: rows of the position table before the first position's, one of which is padding's.
        rope_theta: the base of rotary positions.
        local_rope_theta: the same in layers with a window; None: `rope_theta`.
        relative_attention_buckets: distances between tokens that have a bias of their own in attention, all layers
            sharing it (Raffel et al. 2019, arXiv:1910.10683, section 2.1); 0: none.
        local_window: how far a token sees to either side in local layers; None: every layer is global.
        global_every: one layer in this number, from the first, is global.
        type_vocab_size: number of segment ids; 0: no segment embedding.
        norm: `layer_norm` or `rms_norm`.
        norm_placement: `post` (after the residual sum) or `pre` (before each block, but for the first, which the
            embeddings' comes before, and after the last layer).
        norm_bias: whether LayerNorm has a bias.
        attention_bias: whether the dense layers of attention have biases.
        mlp_bias: whether the feed-forward layers have biases.
        initializer_range: the parameter (not the standard deviation) of the truncated normal initialiser.
        layer_norm_eps: added to the variance in LayerNorm.
        pad_token_id: id of the padding token.
        pooler: whether there is a tanh pooler over the first token, for the heads that can do without.
        classifier_summary: what a sequence classifier sees: the pooler's result (`pooler`), that of a dense layer of
            its own with an activation (`tanh`, `relu`, `gelu`), or of the masked-LM head's transformation
            (`transform`), which then stands before the heads of tokens and spans too.
        choice_summary: the same for multiple choice.
        classifier_pooling: of which tokens: the first (`cls`) or the `mean` of all, for `transform`.
        drop_before_summary: whether a sequence classifier's own dense layer comes after a dropout too.
        head_act: the activation in the masked-LM head; None: `hidden_act`.
        head_bias: whether its dense layer has a bias.
        decoder_bias: whether each word has one there.
        tie_word_embeddings: whether its output matrix is the word embedding.
        num_labels: classes of a classifier head (1 for regression).
        id2label: their names, or None.
        problem_type: what a sequence classifier is trained for, or None when not said.
        pooling: how a sentence embedding is made from token vectors: one of `POOLINGS`, or several with `+` between
            them, whose vectors are concatenated.
        pooling_skip: leading tokens of a row that are not pooled: those of a prompt.
        embedding_layers: what a sentence embedding goes through after that.
        normalize_embeddings: whether a sentence embedding is scaled to unit length.
        carried: keys and values of the `config.json` that was read which no other field says; `to_hf` writes them
            again. They shape nothing, and configs are compared without them.
    """

    family: str = "bert"
    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    embedding_size: int | None = None
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
    norm: str = "layer_norm"
    norm_placement: str = "post"
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
    carried: tuple[tuple[str, Any], ...] = dataclasses.field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not None or field.name not in _MAY_BE_NONE:
                _check(field.name, value, field.type)
        if self.hidden_size % self.num_attention_heads:
            raise InputError(
                f"model config: num_attention_heads {self.num_attention_heads} must divide "
                f"hidden_size {self.hidden_size}"
            )
        if self.position_embedding_type == "rotary" and self.head_size % 2:
            raise InputError(f"model config: rotary positions need heads of an even size, found {self.head_size}")
        _check_embedding(self)
        if self.embedding_size == self.hidden_size:
            object.__setattr__(self, "embedding_size", None)  # one value for one architecture
        if self.id2label is not None and len(self.id2label) != self.num_labels:
            raise InputError(f"model config: num_labels is {self.num_labels} but id2label names {len(self.id2label)}")

    @property
    def head_size(self) -> int:
        """Width of one attention head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def embedding_width(self) -> int:
        """Width of the embeddings."""
        return self.embedding_size or self.hidden_size

    @property
    def poolings(self) -> tuple[str, ...]:
        """How a sentence embedding is made from token vectors, one by one."""
        return tuple(self.pooling.split("+"))

    @property
    def sentence_embedding_size(self) -> int:
        """Width of a sentence embedding."""
        pooled = self.hidden_size * len(self.poolings)
        return self.embedding_layers[-1].features if self.embedding_layers else pooled

    @property
    def windows(self) -> tuple[int | None, ...]:
        """How far a token sees in each layer; None: anywhere."""
        return tuple(self.local_window if i % self.global_every else None for i in range(self.num_hidden_layers))

    @classmethod
    def named(cls, size: str, family: str = "bert", **changes: Any) -> Self:
        """The config of a named size (`SIZES`, or the family's own) of a family, with some fields changed.

        Raises:
            InputError: no such size, or no such family.
        """
        _check("family", family, str)
        base = cls._of_family({}, family)
        sizes = {name: (*shape, 4 * shape[1]) for name, shape in SIZES.items()} | dict(FAMILIES[family].sizes)
        if size not in sizes:
            raise InputError(f"model size {size!r} is not known{did_you_mean(size, sizes)}")
        names = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size")
        shape: dict[str, Any] = dict(zip(names, sizes[size], strict=True))
        if size not in FAMILIES[family].sizes:
            shape["embedding_size"] = None  # narrower embeddings are of a family's own sizes
        # Where padding has another id than the family's usual one, positions may begin in another row.
        offset = FAMILIES[family].position_offset({"pad_token_id": changes.get("pad_token_id", base.pad_token_id)})
        return base.replace(**shape | {"position_offset": offset} | changes)

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed."""
        return dataclasses.replace(self, **changes)

    @classmethod
    def from_hf(cls, hf: dict[str, Any], where: str = "config.json") -> Self:
        """The config that a Hugging Face `config.json` (as a dict) describes.

        Keys are compared with `bert_jax.model_files.config`: one that is refused is an error, and one that is not known
        is named in a warning.

        Raises:
            InputError: its family is not known, or a value has another type or range than its key, or no meaning here.
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
        return cls._of_family(hf, family, **classes)

    @classmethod
    def _of_family(cls, hf: dict[str, Any], family: str, **more: Any) -> Self:
        kind = FAMILIES[family]
        types = {field.name: field.type for field in dataclasses.fields(cls)}
        for field, key in (*kind.keys.items(), *kind.older_keys.items()):
            if key in hf and not (hf[key] is None and field in _MAY_BE_NULL):
                _check(field, _activation(hf[key]) if field.endswith("_act") else hf[key], types[field], key)
        hf = kind.defaults | {key: value for key, value in hf.items() if value is not None}
        ours = {field: hf[key] for field, key in kind.keys.items() if key in hf} | kind.reads(hf) | dict(kind.fixed)
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
        """The dict that Hugging Face writes as `config.json`; `architecture` is its class, "" the bare encoder's.

        Raises:
            InputError: the family has no way to say what this config is.
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
                hf[key] = carried[key]  # by the name that it had
        if "embedding_size" in kind.keys:
            hf["embedding_size"] = self.embedding_width
        hf["id2label"] = {str(i): name for i, name in enumerate(self.label_names)}
        hf["label2id"] = {name: i for i, name in enumerate(self.label_names)}
        self._check_said(BertConfig._read(hf, self.family, "config.json"))
        return carried | hf

    @property
    def label_names(self) -> tuple[str, ...]:
        """Names of the classes: those given, or LABEL_0 and so on."""
        return self.id2label or tuple(f"LABEL_{i}" for i in range(self.num_labels))

    def _check_said(self, back: "BertConfig") -> None:
        for field in dataclasses.fields(self):
            ours, theirs = getattr(self, field.name), getattr(back, field.name)
            if ours != theirs and field.name not in _NOT_IN_HF:
                raise InputError(
                    f"model config: {field.name}: expected {theirs!r}, as every {self.family} in the Hugging Face "
                    f"layout has it, found {ours!r}"
                )

    @classmethod
    def from_pretrained(cls, path: storage.PathLike, **changes: Any) -> Self:
        """Reads the `config.json` of a model directory, with some fields changed.

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
        """Reads a Hugging Face `config.json`. Raises InputError when it is missing, not JSON or not a BERT."""
        return cls.from_hf(storage.read_json(path), where=str(path))

    def to_json_file(self, path: storage.PathLike, architecture: str = "") -> None:
        """Writes a Hugging Face `config.json`, whole or not at all."""
        storage.write_atomically(path, json.dumps(self.to_hf(architecture), indent=2, sort_keys=True) + "\n")


# What a Hugging Face config.json does not say: other files do, or nothing needs to.
_NOT_IN_HF = (
    "pooler", "pooling", "pooling_skip", "embedding_layers", "normalize_embeddings", "id2label", "carried",
)  # fmt: skip
_MAY_BE_NULL = (*_MAY_BE_NONE, "pad_token_id")  # in a config.json, where it means that nothing is said
_NOT_BELOW_0 = ("initializer_range", "layer_norm_eps")


def _check_embedding(config: BertConfig) -> None:
    """Raises InputError when the fields of a sentence embedding do not fit together."""
    modes = config.pooling.split("+") if isinstance(config.pooling, str) else [config.pooling]
    for mode in modes:
        if mode not in POOLINGS:
            raise InputError(f"model config: pooling {mode!r} is not known{did_you_mean(str(mode), POOLINGS)}")
    if len(set(modes)) < len(modes):
        raise InputError(f"model config: pooling: expected each of several once, found {config.pooling!r}")
    width = config.hidden_size * len(modes)
    for i, layer in enumerate(config.embedding_layers):
        if layer.inputs != width:
            raise InputError(
                f"model config: embedding_layers[{i}] ({layer.kind}): expected {width} inputs, as what comes "
                f"before it gives, found {layer.inputs}"
            )
        width = layer.features


def _activation(name: Any) -> Any:
    return _ACTIVATION_ALIASES.get(name, name) if isinstance(name, str) else name


def _check(name: str, value: Any, kind: Any, key: str = "") -> None:
    """Raises InputError when a field cannot have this value; it names `key`, where a file has it under that."""
    label, found = key or f"model config: {name}", printable(repr(value), _MOST_SHOWN)
    is_number = type(value) in (int, float) and -_LARGEST_SIZE <= value <= _LARGEST_SIZE  # not so of NaN
    if name == "carried":
        return
    if name in CHOICES:
        if value not in CHOICES[name]:
            raise InputError(f"{label} {found} is not known{did_you_mean(str(value), CHOICES[name])}")
    elif name in _POSITIVE or kind is int:
        least, what = (1, "positive") if name in _POSITIVE else (0, "non-negative")
        if type(value) is not int or value < least:
            raise InputError(f"{label} must be a {what} integer, found {found}")
        if value > (most := MOST_CLASSES if name == "num_labels" else _LARGEST_SIZE):
            raise InputError(f"{label} must be at most {most}, found {found}")
    elif name.endswith(("_prob", "_dropout")):
        if not is_number or not 0 <= value < 1:
            raise InputError(f"{label} must be a rate in [0, 1), found {found}")
    elif "theta" in name or name in _NOT_BELOW_0:
        what = "non-negative" if name in _NOT_BELOW_0 else "positive"
        if not is_number or value < 0 or (value == 0 and what == "positive"):
            raise InputError(f"{label} must be a {what} number, found {found}")
    elif kind is bool and not isinstance(value, bool):
        raise InputError(f"{label} must be true or false, found {found}")


_MOST_SHOWN = 80  # characters of a value in a message
