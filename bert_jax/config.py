"""The architecture of a BERT as one frozen value, its named sizes, and its Hugging Face `config.json`."""

import dataclasses
import json
from typing import Any, Self

from bert_jax import files
from bert_jax.errors import InputError, did_you_mean

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
ACTIVATIONS = ("gelu", "gelu_tanh", "relu")
POSITIONS = ("absolute", "sinusoidal")
POOLINGS = ("mean", "cls", "max")
PROBLEM_TYPES = ("single_label_classification", "multi_label_classification", "regression")

# Names that Hugging Face files use for one of ACTIVATIONS.
_ACTIVATION_ALIASES = {"gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu_python": "gelu"}


@dataclasses.dataclass(frozen=True)
class BertConfig:
    """One BERT architecture; equal configs have equal parameter trees.

    Attributes:
        vocab_size: rows of the word embedding.
        hidden_size: width of the residual stream.
        num_hidden_layers: encoder layers.
        num_attention_heads: heads; must divide `hidden_size`.
        intermediate_size: width of the feed-forward layer.
        hidden_act: `gelu` (erf, the 2018 release) or `gelu_tanh` (the small models), or `relu`.
        hidden_dropout_prob: dropout rate after embeddings, attention output and feed-forward output.
        attention_probs_dropout_prob: dropout rate on attention probabilities.
        classifier_dropout: dropout rate before a classifier; None means `hidden_dropout_prob`.
        max_position_embeddings: longest sequence the model takes, in tokens.
        type_vocab_size: number of segment ids.
        initializer_range: the parameter (not the standard deviation) of the truncated normal initialiser.
        layer_norm_eps: added to the variance in LayerNorm.
        pad_token_id: id of the padding token.
        position_embedding_type: `absolute` (learned) or `sinusoidal` (fixed).
        pooler: whether there is a tanh pooler over the first token, for the heads that can do without.
        num_labels: classes of a classifier head (1 for regression).
        id2label: their names, or None.
        problem_type: what a sequence classifier is trained for, or None when not said.
        pooling: how a sentence embedding is made from token vectors.
        normalize_embeddings: whether a sentence embedding is scaled to unit length.
    """

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    classifier_dropout: float | None = None
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    pad_token_id: int = 0
    position_embedding_type: str = "absolute"
    pooler: bool = True
    num_labels: int = 2
    id2label: tuple[str, ...] | None = None
    problem_type: str | None = None
    pooling: str = "mean"
    normalize_embeddings: bool = True

    def __post_init__(self) -> None:
        for name in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
                     "max_position_embeddings", "type_vocab_size", "num_labels"):  # fmt: skip
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise InputError(f"model config: {name} must be a positive integer, found {value!r}")
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"):
            value = getattr(self, name)
            if value is None and name == "classifier_dropout":
                continue
            if not isinstance(value, (int, float)) or not 0 <= value < 1:
                raise InputError(f"model config: {name} must be a rate in [0, 1), found {value!r}")
        for name, choices in (("hidden_act", ACTIVATIONS), ("position_embedding_type", POSITIONS),
                              ("pooling", POOLINGS), ("problem_type", PROBLEM_TYPES)):  # fmt: skip
            value = getattr(self, name)
            if value not in choices and not (value is None and name == "problem_type"):
                raise InputError(f"model config: {name} {value!r} is not known{did_you_mean(str(value), choices)}")
        if self.hidden_size % self.num_attention_heads:
            raise InputError(
                f"model config: num_attention_heads {self.num_attention_heads} must divide "
                f"hidden_size {self.hidden_size}"
            )
        if self.id2label is not None and len(self.id2label) != self.num_labels:
            raise InputError(f"model config: num_labels is {self.num_labels} but id2label names {len(self.id2label)}")

    @property
    def head_size(self) -> int:
        """Width of one attention head."""
        return self.hidden_size // self.num_attention_heads

    @classmethod
    def named(cls, size: str, **changes: Any) -> Self:
        """The config of a named size (`SIZES`), with some fields changed. Raises InputError for an unknown name."""
        if size not in SIZES:
            raise InputError(f"model size {size!r} is not known{did_you_mean(size, SIZES)}")
        layers, hidden, heads = SIZES[size]
        shape = {
            "num_hidden_layers": layers,
            "hidden_size": hidden,
            "num_attention_heads": heads,
            "intermediate_size": 4 * hidden,
        }
        return cls(**(shape | changes))

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed."""
        return dataclasses.replace(self, **changes)

    @classmethod
    def from_hf(cls, hf: dict[str, Any], where: str = "config.json") -> Self:
        """The config that a Hugging Face `config.json` (as a dict) describes.

        Keys that do not shape a BERT are ignored.

        Raises:
            InputError: it is not a BERT, or a field has no meaning here.
        """
        model_type = hf.get("model_type", "bert")
        if model_type != "bert":
            raise InputError(f"{where}: expected model_type 'bert', found {model_type!r}")
        ours = {name: hf[name] for name in _HF_FIELDS if name in hf}
        ours["hidden_act"] = _ACTIVATION_ALIASES.get(hf.get("hidden_act", "gelu"), hf.get("hidden_act", "gelu"))
        labels = hf.get("id2label")
        if labels:
            try:
                names = [str(labels[key]) for key in sorted(labels, key=int)]
            except (TypeError, ValueError):
                raise InputError(f"{where}: id2label must map 0, 1, ... to names, found {labels!r}") from None
            ours["num_labels"] = len(names)
            generic = names == [f"LABEL_{i}" for i in range(len(names))]
            ours["id2label"] = None if generic else tuple(names)
        elif "num_labels" in hf:
            ours["num_labels"] = hf["num_labels"]
        try:
            return cls(**ours)
        except InputError as error:
            raise InputError(f"{where}: {error}") from None

    def to_hf(self, architecture: str = "BertModel") -> dict[str, Any]:
        """The dict that Hugging Face writes as `config.json`; `architecture` is its class name."""
        hf: dict[str, Any] = {"architectures": [architecture], "model_type": "bert"}
        hf |= {name: getattr(self, name) for name in _HF_FIELDS}
        hf["hidden_act"] = "gelu_new" if self.hidden_act == "gelu_tanh" else self.hidden_act
        names = self.id2label or tuple(f"LABEL_{i}" for i in range(self.num_labels))
        hf["id2label"] = {str(i): name for i, name in enumerate(names)}
        hf["label2id"] = {name: i for i, name in enumerate(names)}
        return hf

    @classmethod
    def from_json_file(cls, path: files.PathLike) -> Self:
        """Reads a Hugging Face `config.json`. Raises InputError when it is missing, not JSON or not a BERT."""
        return cls.from_hf(read_json(path), where=str(path))

    def to_json_file(self, path: files.PathLike, architecture: str = "BertModel") -> None:
        """Writes a Hugging Face `config.json`, whole or not at all."""
        files.write_atomically(path, json.dumps(self.to_hf(architecture), indent=2, sort_keys=True) + "\n")


def read_json(path: files.PathLike) -> dict[str, Any]:
    """Returns the JSON object in a file. Raises InputError when it is missing or not one."""
    try:
        value = json.loads(files.read_text(path))
    except json.JSONDecodeError as error:
        raise InputError(f"{path}: expected JSON, found {error.msg} at line {error.lineno}") from None
    if not isinstance(value, dict):
        raise InputError(f"{path}: expected a JSON object, found {type(value).__name__}")
    return value


# Fields that a Hugging Face config.json holds under the same name. (`hidden_act` and the labels are translated.)
_HF_FIELDS = tuple(
    field.name
    for field in dataclasses.fields(BertConfig)
    if field.name not in ("hidden_act", "num_labels", "id2label", "pooler", "pooling", "normalize_embeddings")
)
