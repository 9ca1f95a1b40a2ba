"""The modules of a sentence-transformers directory, and checks of their files."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from bert_jax import storage
from bert_jax.conversion.text_settings import TextSettings
from bert_jax.errors import InputError
from bert_jax.model_files import FileKey, check_keys


class EmbeddingModule(NamedTuple):
    """A module of modules.json: its class and its directory."""

    type: str
    folder: storage.Path

    @property
    def kind(self) -> str:
        return self.type.rsplit(".", 1)[-1]


class ModuleLayout(NamedTuple):
    """The layout of a sentence-transformers directory.

    Attributes:
        root: the directory.
        head: the saved head: one of `EMBEDDING_HEADS`, or `sequence_classification` for a cross-encoder.
        model_type: model_type of config_sentence_transformers.json.
        modules: the modules in order; behind a Router, those of documents.
        settings: all settings except `include_prompt`, which is in the Pooling module's file.
        query_modules: the modules of queries, if they are others.
        default_route: `query` or `document`: the modules of a text that is neither.
    """

    root: storage.Path
    head: str
    model_type: str
    modules: tuple[EmbeddingModule, ...]
    settings: TextSettings
    query_modules: tuple[EmbeddingModule, ...] = ()
    default_route: str = "document"

    @property
    def is_static(self) -> bool:
        """Return whether the first module is a StaticEmbedding, which may have no config.json."""
        return bool(self.modules) and self.modules[0].kind == "StaticEmbedding"

    @property
    def classifies_embedding(self) -> bool:
        """Return whether the model is a classifier over sentence embeddings (`embedding_classifiers`)."""
        return self.head == "sequence_classification" and len(self.modules) > 1

    @property
    def transformer(self) -> storage.Path:
        """Return the directory of the BERT itself, which in older layouts is `0_Transformer` or the like."""
        kinds = ("Transformer", "MLMTransformer", "StaticEmbedding")
        return next((module.folder for module in self.modules if module.kind in kinds), self.root)


def checked_object(
    path: storage.Path, table: tuple[FileKey, ...], others: Iterable[str] | None = None
) -> tuple[dict[str, Any], storage.Path]:
    """Read a JSON object and check its keys; return it with its path. A missing file is an empty object.

    Args:
        path: the file.
        table: its keys.
        others: as for `check_keys`.
    """
    content = storage.read_json(path) if path.exists() else {}
    check_keys(content, table, path, others)
    return content, path


def optional_integer(content: Mapping[str, Any], key: str, where: object) -> int | None:
    value = content.get(key)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise InputError(f"{where}: {key} must be a positive integer, found {value!r}")
    return value


def optional_boolean(content: Mapping[str, Any], key: str, default: bool, where: object) -> bool:
    value = content.get(key)
    if value is not None and not isinstance(value, bool):
        raise InputError(f"{where}: {key} must be true or false, found {value!r}")
    return default if value is None else value
