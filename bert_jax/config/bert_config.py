"""`BertConfig`, the architecture of a model as a frozen dataclass; named sizes; reading and writing `config.json`."""

import dataclasses
import json
from typing import TYPE_CHECKING, Any, Self

from bert_jax import storage
from bert_jax.config.encoder_config import EncoderConfig
from bert_jax.config.fields import setting
from bert_jax.config.json_fields import check_round_trip, read_fields, write_fields
from bert_jax.config.part import ModelPart
from bert_jax.config.parts import BERTS_PARTS, PLACES, SELECTORS, check_part, declared_settings, with_parts
from bert_jax.config.values import POOLINGS, PROBLEM_TYPES, SIZES, EmbeddingLayer, check_fields_together
from bert_jax.errors import InputError, did_you_mean
from bert_jax.families import FAMILIES, config_keys, family_of, import_parts, keys_of_any_model
from bert_jax.model_files import check_keys
from bert_jax.model_files.config import NOT_CARRIED
from bert_jax.model_files.labels import MOST_CLASSES, read_classes
from bert_jax.storage import hub

if TYPE_CHECKING:  # not imported for models that do not use them
    from bert_jax.config.gliner import GlinerConfig
    from bert_jax.config.quantization import Quantization


@dataclasses.dataclass(frozen=True)
class BertConfig(EncoderConfig):
    """The architecture of a model: the encoder and its heads. Equal configs have equal parameter trees."""

    pooler: bool = setting(True, "whether the model has a tanh pooler over the first token", in_json=False)
    tie_word_embeddings: bool = setting(True, "whether masked LM's output matrix is the word embedding", shapes=True)
    num_labels: int = setting(2, "number of classes of a classifier (1 for regression)", least=1, most=MOST_CLASSES)
    id2label: tuple[str, ...] | None = setting(None, "names of the classes", in_json=False)
    problem_type: str | None = setting(None, "type of a sequence classifier", choices=PROBLEM_TYPES)
    pooling: str = setting("mean", f"pooling of token vectors into a sentence embedding: {', '.join(POOLINGS)}; + "
                           "joins several", recipe=True, in_json=False)  # fmt: skip
    pooling_skip: int = setting(0, "number of leading tokens not pooled, such as a prompt's", least=0, in_json=False)
    embedding_layers: tuple[EmbeddingLayer, ...] = setting((), "layers after the pooling", in_json=False)
    normalize_embeddings: bool = setting(True, "whether sentence embeddings are normalized", recipe=True, in_json=False)
    classifies_embedding: bool = setting(False, "whether a classifier of texts reads their embedding", in_json=False)
    query_weights: str = setting("", "sparse embeddings of queries from a table of token weights, trainable or frozen; "
                                 "'' = no table", choices=("", "trainable", "frozen"), in_json=False)  # fmt: skip
    gliner: "GlinerConfig | None" = setting(None, "the head of a GLiNER", in_json=False)
    quantization: "Quantization | None" = setting(None, "how parameters are quantized", in_json=False)
    carried: tuple[tuple[str, Any], ...] = setting(
        (), "other keys of the `config.json` that was read, which are written again", compare=False, in_json=False
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for place, part in self.parts.items():
            check_part(place, part)
        check_fields_together(self)
        for place, part in self.parts.items():
            part.check(self)
            object.__setattr__(self, place, part.canonical(self))
        if self.head_dim and self.head_dim * self.num_attention_heads == self.inner_size:
            object.__setattr__(self, "head_dim", None)  # equal architectures have equal configs
        if self.id2label is not None and len(self.id2label) != self.num_labels:
            raise InputError(
                f"model config: num_labels is {self.num_labels} but id2label has {len(self.id2label)} names"
            )

    @property
    def transform_width(self) -> int:
        """Return the width of the masked-LM head's transform, and of its output matrix."""
        return self.heads.transform_width(self.hidden_size, self.embedding_width)

    def summary_of(self, head: str) -> str | None:
        """Return the layer between the encoder and a head: one of `config.values.SUMMARIES`, `embedding` or None."""
        match head:
            case "pretraining" | "next_sentence":
                return "pooler"
            case "sequence_classification":
                summary = "embedding" if self.classifies_embedding else self.heads.classifier_summary
                return None if summary == "none" else summary
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
        """Return the width of an embedding: of a text, or of each token in a multi-vector model."""
        pooled = self.hidden_size * len(self.poolings)
        return self.embedding_layers[-1].features if self.embedding_layers else pooled

    @classmethod
    def named(cls, size: str, family: str = "bert", **changes: Any) -> Self:
        """Return the config of a named size (`SIZES`, or the family's own), with some fields changed.

        Raises:
            InputError: the size or the family is not known.
        """
        cls.declared["family"].check(family, "model config: family")
        base = cls._of_family(dict(FAMILIES[family].fresh), family)
        sizes = {name: (*shape, 4 * shape[1]) for name, shape in SIZES.items()} | dict(FAMILIES[family].sizes)
        if size not in sizes:
            raise InputError(f"model size {size!r} is not known{did_you_mean(size, sizes)}")
        names = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size")
        shape: dict[str, Any] = dict(zip(names, sizes[size], strict=True))
        if size not in FAMILIES[family].sizes:
            # Only a family's own sizes have narrower embeddings and bottlenecks.
            shape |= {"embeddings": base.embeddings.of_other_size(), "layer": base.layer.of_other_size()}
        config = base.replace(**shape | changes)
        # The position offset may depend on the id of padding.
        offset = FAMILIES[family].position_offset({"pad_token_id": config.pad_token_id})
        return config.replace(position_offset=offset) if "position_offset" in config.settings() else config

    @property
    def parts(self) -> dict[str, ModelPart]:
        """Return the parts by place, such as `attention`."""
        return {place: getattr(self, place) for place in PLACES}

    def settings(self) -> dict[str, Any]:
        """Return name -> value of all fields except the parts, and of the settings of the parts."""
        plain = {name: getattr(self, name) for name in self.declared if name not in PLACES}
        kinds = {name: getattr(self, place).kind for name, place in SELECTORS.items()}
        return plain | kinds | {name: getattr(part, name) for part in self.parts.values() for name in part.declared}

    def setting(self, name: str, default: Any = None) -> Any:
        """Return the value of a setting of the parts by name; `default` if this model's parts do not have it."""
        return next((getattr(part, name) for part in self.parts.values() if name in part.declared), default)

    def replace(self, **changes: Any) -> Self:
        """Return a copy with changes to fields or to settings of its parts.

        Raises:
            InputError: a setting belongs to a part that this model does not have, or the values do not fit together.
        """
        known = self.declared
        if not changes.keys() <= {*known, *self.settings()}:
            import_parts()  # so that the message can name the part to which a setting of another family belongs
        fields = with_parts(changes, self.parts, self.family)
        if unknown := [name for name in fields if name not in known]:
            synonyms = {name: setting.synonyms for name, setting in declared_settings(type(self)).items()}
            hint = did_you_mean(unknown[0], {*known, *self.settings()}, synonyms)
            raise InputError(f"model config: {unknown[0]!r} is not known{hint}")
        return dataclasses.replace(self, **fields)

    @classmethod
    def from_hf(cls, hf: dict[str, Any], where: str = "config.json") -> Self:
        """Return the config that a Hugging Face `config.json` (as a dict) describes.

        Refused keys are an error. An unread key causes a warning if it has an effect in another family, or a name like
        that of a key with an effect in this one.

        Raises:
            InputError: the family is not known, or a value has the wrong type or range or is not supported.
        """
        family = family_of(hf, where)
        check_keys(hf, config_keys(family), where, keys_of_any_model())
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
        fields = read_fields(hf, family, declared_settings(cls)) | more
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
        check_round_trip(self, BertConfig._read(hf, self.family, "config.json"))
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
