"""`BertConfig`, the architecture of a model as a frozen dataclass; named sizes; reading and writing `config.json`."""

import dataclasses
import json
from typing import TYPE_CHECKING, Any, Self

from bert_jax import storage
from bert_jax.config.encoder_config import EncoderConfig
from bert_jax.config.json_fields import check_said, read_fields, write_fields
from bert_jax.config.part import ModelPart, setting_names
from bert_jax.config.parts import BERTS_PARTS, PLACES, SELECTORS, check_part, setting_types, with_parts
from bert_jax.config.values import (
    MAY_BE_NONE,
    SIZES,
    EmbeddingLayer,
    check_fields_together,
    check_value,
)
from bert_jax.errors import InputError, did_you_mean
from bert_jax.families import FAMILIES, config_keys, family_of
from bert_jax.model_files import check_keys
from bert_jax.model_files.config import NOT_CARRIED
from bert_jax.model_files.labels import read_classes
from bert_jax.storage import hub

if TYPE_CHECKING:  # models without them are read without these modules
    from bert_jax.config.gliner import GlinerConfig
    from bert_jax.config.quantization import Quantization


@dataclasses.dataclass(frozen=True)
class BertConfig(EncoderConfig):
    """The architecture of a model: the encoder and its heads. Equal configs have equal parameter trees.

    Attributes:
        pooler: whether there is a tanh pooler over the first token, for heads that do not need it.
        tie_word_embeddings: whether the output matrix of the masked-LM head is the word embedding.
        num_labels: number of classes of a classifier (1 for regression).
        id2label: names of the classes, or None.
        problem_type: type of a sequence classifier, one of PROBLEM_TYPES, or None.
        pooling: pooling of token vectors into a sentence embedding: one of `POOLINGS`, or several joined by `+`, whose
            vectors are concatenated; or one of `SPARSE_POOLINGS`.
        pooling_skip: number of leading tokens that are not pooled, such as those of a prompt.
        embedding_layers: layers after the pooling.
        normalize_embeddings: whether a sentence embedding is scaled to unit length.
        gliner: the head of a GLiNER, or None.
        quantization: how parameters are quantized, or None.
        carried: other keys and values of the `config.json` that was read, which `to_hf` writes again. They do not
            affect the model and are ignored in comparisons.
    """

    pooler: bool = True
    tie_word_embeddings: bool = True
    num_labels: int = 2
    id2label: tuple[str, ...] | None = None
    problem_type: str | None = None
    pooling: str = "mean"
    pooling_skip: int = 0
    embedding_layers: tuple[EmbeddingLayer, ...] = ()
    normalize_embeddings: bool = True
    gliner: "GlinerConfig | None" = None
    quantization: "Quantization | None" = None
    carried: tuple[tuple[str, Any], ...] = dataclasses.field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name in PLACES:
                check_part(field.name, value)
            elif value is not None or field.name not in MAY_BE_NONE:
                check_value(field.name, value, field.type)
        check_fields_together(self)
        for place, part in self.parts.items():
            part.check(self)
            object.__setattr__(self, place, part.canonical(self))
        if self.head_dim and self.head_dim * self.num_attention_heads == self.inner_size:
            object.__setattr__(self, "head_dim", None)  # one value for one architecture
        if self.id2label is not None and len(self.id2label) != self.num_labels:
            raise InputError(f"model config: num_labels is {self.num_labels} but id2label names {len(self.id2label)}")

    @property
    def transform_width(self) -> int:
        """Return the width of the masked-LM head's transform, and of its output matrix."""
        return self.hidden_size if self.heads.wide_decoder else self.embedding_width

    def summary_of(self, head: str) -> str | None:
        """Return the layer between the encoder and a head: one of `bert_jax.config.values.SUMMARIES`, or None."""
        match head:
            case "pretraining" | "next_sentence":
                return "pooler"
            case "sequence_classification":
                return self.heads.classifier_summary
            case "multiple_choice":
                return self.heads.choice_summary
            case "token_classification" | "question_answering" if self.heads.classifier_summary == "transform":
                return "transform"
        return None

    @property
    def poolings(self) -> tuple[str, ...]:
        """Return the poolings whose vectors are concatenated into a sentence embedding."""
        return tuple(self.pooling.split("+"))

    @property
    def sentence_embedding_size(self) -> int:
        """Return the width of a sentence embedding, or of a token's embedding in a model with one for each."""
        pooled = self.hidden_size * len(self.poolings)
        return self.embedding_layers[-1].features if self.embedding_layers else pooled

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
            # Only a family's own sizes have narrower embeddings and bottlenecks.
            shape |= {"embedding_size": None, "layer": base.layer.of_other_size()}
        config = base.replace(**shape | changes)
        # The position offset may depend on the id of padding.
        offset = FAMILIES[family].position_offset({"pad_token_id": config.pad_token_id})
        return config.replace(position_offset=offset) if "position_offset" in config.settings() else config

    @property
    def parts(self) -> dict[str, ModelPart]:
        """Return the parts by place."""
        return {place: getattr(self, place) for place in PLACES}

    def settings(self) -> dict[str, Any]:
        """Return the values of all fields but the parts, and of the settings of the parts, by name."""
        own = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name not in PLACES}
        kinds = {name: getattr(self, place).kind for name, place in SELECTORS.items()}
        return own | kinds | {name: getattr(part, name) for part in self.parts.values() for name in setting_names(part)}

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed, or settings of its parts.

        Raises:
            InputError: a setting is that of a part that this model does not have, or the values do not fit.
        """
        fields = with_parts(changes, self.parts, self.family)
        known = [field.name for field in dataclasses.fields(self)]
        if unknown := [name for name in fields if name not in known]:
            raise InputError(
                f"model config: {unknown[0]!r} is not known{did_you_mean(unknown[0], {*known, *self.settings()})}"
            )
        return dataclasses.replace(self, **fields)

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
        classes: dict[str, Any] = {} if count is None else {"num_labels": count, "id2label": names}
        if hf.get("quantization_config") is not None:
            from bert_jax.config.quantization import Quantization

            classes["quantization"] = Quantization.from_hf(hf["quantization_config"])
        return cls._of_family(hf, family, **classes)

    @classmethod
    def _of_family(cls, hf: dict[str, Any], family: str, **more: Any) -> Self:
        fields = read_fields(hf, family, setting_types(cls)) | more
        return cls(family=family, **with_parts(fields, BERTS_PARTS, family, of_file=True))

    def to_hf(self, architecture: str = "") -> dict[str, Any]:
        """Return the config as a Hugging Face `config.json` dict.

        Args:
            architecture: the Hugging Face class; "" = that of the bare encoder.

        Raises:
            InputError: the family's `config.json` cannot describe this config.
        """
        hf = write_fields(self.settings() | self.parts, architecture, carried := dict(self.carried))
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
