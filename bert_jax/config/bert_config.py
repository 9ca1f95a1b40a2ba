"""`BertConfig`, the architecture of a model as a frozen dataclass; named sizes; reading and writing `config.json`."""

import dataclasses
import json
from typing import Any, Self

from bert_jax import storage
from bert_jax.config.encoder_config import EncoderConfig
from bert_jax.config.gliner import GlinerConfig
from bert_jax.config.json_fields import check_said, read_fields, write_fields
from bert_jax.config.parts import PLACES, SELECTORS, Part, check_part, settings_of, types_of, with_parts
from bert_jax.config.quantization import Quantization
from bert_jax.config.values import (
    MAY_BE_NONE,
    SIZES,
    EmbeddingLayer,
    check_fields_together,
    check_value,
    shortest_period,
)
from bert_jax.errors import InputError, did_you_mean
from bert_jax.families import FAMILIES, config_keys, family_of
from bert_jax.model_files import check_keys
from bert_jax.model_files.config import NOT_CARRIED
from bert_jax.model_files.labels import read_classes
from bert_jax.storage import hub


@dataclasses.dataclass(frozen=True)
class BertConfig(EncoderConfig):
    """The architecture of a model: the encoder and its heads. Equal configs have equal parameter trees.

    Attributes:
        pooler: whether there is a tanh pooler over the first token, for heads that do not need it.
        pooler_dense: whether the pooler has a dense layer and tanh; False = its output is the first token's state.
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
        wide_decoder: whether the masked-LM head's transform is `hidden_size` wide, and its output matrix has columns
            of its own beside those of narrower word embeddings.
        contact_head: whether the encoder has a logistic regression over its attention maps that predicts contacts of a
            protein's residues (Rao et al. 2021, doi:10.1101/2020.12.15.422761).
        discriminator_norm: whether the head for replaced tokens adds the first token's state to that of each token,
            with a LayerNorm, before its dense layer.
        legacy: whether a DeBERTa's files name the tensors of the masked-LM head as BERT's.
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
    pooler_dense: bool = True
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
    wide_decoder: bool = False
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
    gliner: GlinerConfig | None = None
    quantization: Quantization | None = None
    carried: tuple[tuple[str, Any], ...] = dataclasses.field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name in PLACES:
                check_part(field.name, value)
            elif value is not None or field.name not in MAY_BE_NONE:
                check_value(field.name, value, field.type)
        check_fields_together(self)
        for part in self.parts.values():
            part.check(self)
        if self.head_dim and self.head_dim * self.num_attention_heads == self.inner_size:
            object.__setattr__(self, "head_dim", None)  # one value for one architecture
        if self.embedding_size == self.hidden_size:
            object.__setattr__(self, "embedding_size", None)  # likewise
        if self.num_key_value_heads == self.num_attention_heads:
            object.__setattr__(self, "num_key_value_heads", None)  # likewise
        object.__setattr__(self, "attention_windows", shortest_period(self.windows) if self.attention_windows else ())
        if self.id2label is not None and len(self.id2label) != self.num_labels:
            raise InputError(f"model config: num_labels is {self.num_labels} but id2label names {len(self.id2label)}")

    @property
    def transform_width(self) -> int:
        """Return the width of the masked-LM head's transform, and of its output matrix."""
        return self.hidden_size if self.wide_decoder else self.embedding_width

    def summary_of(self, head: str) -> str | None:
        """Return the layer between the encoder and a head: one of `bert_jax.config.values.SUMMARIES`, or None."""
        match head:
            case "pretraining" | "next_sentence":
                return "pooler"
            case "sequence_classification":
                return self.classifier_summary
            case "multiple_choice":
                return self.choice_summary
            case "token_classification" | "question_answering" if self.classifier_summary == "transform":
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
        # The position offset may depend on the id of padding.
        offset = FAMILIES[family].position_offset({"pad_token_id": changes.get("pad_token_id", base.pad_token_id)})
        return base.replace(**shape | {"position_offset": offset} | changes)

    @property
    def parts(self) -> dict[str, Part]:
        """Return the parts by place."""
        return {place: getattr(self, place) for place in PLACES}

    def settings(self) -> dict[str, Any]:
        """Return the values of all fields but the parts, and of the settings of the parts, by name."""
        own = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name not in PLACES}
        kinds = {name: self.parts[place].kind for name, place in SELECTORS.items()}
        return own | kinds | {name: getattr(part, name) for part in self.parts.values() for name in settings_of(part)}

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed, or settings of its parts.

        Raises:
            InputError: a setting is that of a part that this model does not have, or the values do not fit.
        """
        return dataclasses.replace(self, **with_parts(changes, self.parts, self.family))

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
        fields = read_fields(hf, family, types_of(cls)) | more
        return cls(family=family, **with_parts(fields, {place: kind() for place, kind in PLACES.items()}, family))

    def to_hf(self, architecture: str = "") -> dict[str, Any]:
        """Return the config as a Hugging Face `config.json` dict.

        Args:
            architecture: the Hugging Face class; "" = that of the bare encoder.

        Raises:
            InputError: the family's `config.json` cannot describe this config.
        """
        hf = write_fields(self.settings(), architecture, carried := dict(self.carried))
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
