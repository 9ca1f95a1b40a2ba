"""Read and write the modules of a MultiVectorEncoder of sentence-transformers, and of ColBERT models of PyLate."""

import dataclasses
import string
from typing import Any

from bert_jax import storage
from bert_jax.config import BertConfig
from bert_jax.config.values import EmbeddingLayer
from bert_jax.conversion.embedding_layers import read_dense
from bert_jax.conversion.module_files import (
    EmbeddingModule,
    ModuleLayout,
    checked_object,
    optional_boolean,
    optional_integer,
)
from bert_jax.conversion.multi_vector_settings import (
    DEFAULT_QUERY_LENGTH,
    MultiVectorSettings,
    QueryExpansion,
    TokenPooling,
)
from bert_jax.conversion.sentence_transformers import (
    EmbeddingSettings,
    module_kind,
    transformer_config,
)
from bert_jax.conversion.text_settings import TextSettings
from bert_jax.errors import InputError
from bert_jax.model_files import multi_vector_encoders as tables
from bert_jax.model_files import routed_encoders

_ROLES = (("query", "query_prefix"), ("document", "document_prefix"))
# Keys of PyLate's config_sentence_transformers.json; if the file has any of them, queries are expanded by default.
_PYLATE_KEYS = (
    "query_length", "document_length", "query_expansion", "do_query_expansion", "attend_to_expansion_tokens",
    "attend_to_mask_tokens", "query_prefix", "document_prefix", "skiplist_words",
)  # fmt: skip


def read_multi_vector(layout: ModuleLayout, config: BertConfig) -> EmbeddingSettings:
    """Read the modules of a MultiVectorEncoder, or of a ColBERT model of PyLate.

    Raises:
        InputError: a module asks for something that is not supported.
    """
    where = layout.root / "modules.json"
    pylate = layout.model_type == "ColBERT"
    kinds = [module_kind(module, where) for module in layout.modules]
    behind = set(kinds[1:-1]) - {"Dense", "Normalize", "MultiVectorMask"}
    behind |= set(kinds[1:][-1:]) - {"Dense", "Normalize", "MultiVectorMask", "HierarchicalTokenPooling"}
    masks = kinds.count("MultiVectorMask")
    if kinds[:1] != ["Transformer"] or behind or masks > 1 or not (masks or pylate):
        expected = "a Transformer, Dense and Normalize modules, one MultiVectorMask and perhaps last a "
        expected += "HierarchicalTokenPooling"
        raise InputError(f"{where}: expected {expected}, found {', '.join(kinds)}")
    pools = kinds[-1] == "HierarchicalTokenPooling"
    config, folders = _projections(layout.modules[1:-1] if pools else layout.modules[1:], config, pylate)
    mask = next((module for module in layout.modules if module.kind == "MultiVectorMask"), None)
    settings = _transformer_settings(layout)
    if mask is not None:
        settings = dataclasses.replace(settings, **_mask(mask))
    elif pylate:
        words = _config(layout).get("skiplist_words")
        settings = dataclasses.replace(settings, skipped_words=tuple(string.punctuation if words is None else words))
    if pools:
        settings = dataclasses.replace(settings, pooling=_token_pooling(layout.modules[-1]))
    markers = {role: _config(layout)[key] for role, key in _ROLES if isinstance(_config(layout).get(key), str)}
    prompts = dict(layout.settings.prompts)
    prompts |= {role: marker + prompts.get(role, "").removeprefix(marker) for role, marker in markers.items()}
    settings = dataclasses.replace(
        layout.settings,
        prompts=tuple(prompts.items()),
        multi_vector=dataclasses.replace(settings, markers=tuple(markers.items())),
    )
    return EmbeddingSettings(config, settings, folders)


def multi_vector_json(settings: TextSettings) -> dict[str, dict[str, Any]]:
    """Return the contents of files that describe late interaction: those of the modules, and the model's."""
    of_tokens = settings.multi_vector or MultiVectorSettings()
    expansion = of_tokens.expansion and {
        "strategy": "fixed" if of_tokens.expansion.truncates else "min",
        "attend": of_tokens.expansion.attended,
        "token": of_tokens.expansion.token or None,
        "length": of_tokens.expansion.length,
    }
    pooling = of_tokens.pooling and {
        "pool_factor": of_tokens.pooling.factor,
        "num_protected_tokens": of_tokens.pooling.protected,
        "normalize_embeddings": of_tokens.pooling.normalizes,
        "tasks": list(of_tokens.pooling.tasks),
    }
    lengths = {"query_length": of_tokens.query_length, "document_length": of_tokens.document_length}
    return {
        "transformer": {key: value for key, value in lengths.items() if value} | {"query_expansion": expansion},
        "pooling": pooling or {},
        "mask": {"skiplist_words": list(of_tokens.skipped_words), "skiplist_tasks": list(of_tokens.skips_in)},
        "model": {key: dict(of_tokens.markers)[role] for role, key in _ROLES if role in dict(of_tokens.markers)},
    }


def _projections(
    modules: tuple[EmbeddingModule, ...], config: BertConfig, pylate: bool
) -> tuple[BertConfig, dict[int, storage.Path]]:
    """Read the modules that change the vectors; return the config, and the directories of the dense layers."""
    changing = [module for module in modules if module.kind != "MultiVectorMask"]
    normalizes = pylate or (bool(changing) and changing[-1].kind == "Normalize")
    if changing and changing[-1].kind == "Normalize":
        checked_object(changing.pop().folder / "config.json", tables.TOKEN_NORMALIZE)
    layers: list[EmbeddingLayer] = []
    folders = {}
    for number, module in enumerate(changing):
        width = layers[-1].features if layers else config.hidden_size
        if module.kind == "Dense":
            layers.append(read_dense(module, width, tables.TOKEN_DENSE))
            folders[number] = module.folder
        else:
            checked_object(module.folder / "config.json", tables.TOKEN_NORMALIZE)
            layers.append(EmbeddingLayer("normalize", width, width))
    layered = config.replace(pooling="mean", embedding_layers=tuple(layers), normalize_embeddings=normalizes)
    return layered, folders


def _config(layout: ModuleLayout) -> dict[str, Any]:
    return checked_object(layout.root / "config_sentence_transformers.json", tables.MULTI_VECTOR_CONFIG)[0]


def _transformer_settings(layout: ModuleLayout) -> MultiVectorSettings:
    """Read lengths and query expansion from the Transformer's file, else from PyLate's keys in the model's file."""
    own, where = transformer_config(layout.transformer, tables.MULTI_VECTOR_TRANSFORMER)
    older, older_where = _config(layout), layout.root / "config_sentence_transformers.json"
    lengths: dict[str, Any] = {}
    for key in ("query_length", "document_length"):
        lengths[key] = optional_integer(own, key, where) or optional_integer(older, key, older_where)
    if "query_expansion" in own or "query_expansion" in older:
        holder, place = (own, where) if "query_expansion" in own else (older, older_where)
        return MultiVectorSettings(**lengths, expansion=_expansion(holder["query_expansion"], place))
    expansion = None
    if any(key in older for key in _PYLATE_KEYS) and older.get("do_query_expansion") is not False:
        attends = older.get("attend_to_expansion_tokens", older.get("attend_to_mask_tokens"))
        expansion = QueryExpansion(lengths.pop("query_length") or DEFAULT_QUERY_LENGTH, attended=bool(attends))
    return MultiVectorSettings(**lengths, expansion=expansion)


def _expansion(value: Any, where: object) -> QueryExpansion | None:
    if value is None:
        return None
    if not isinstance(value, dict) or value.get("strategy") not in ("fixed", "min"):
        raise InputError(f"{where}: query_expansion: expected an object with strategy fixed or min, found {value!r}")
    place, token = f"{where}: query_expansion", value.get("token") or ""
    length = optional_integer(value, "length", place)
    if length is None or not isinstance(token, str):
        raise InputError(f"{place}: expected a length and an optional token, found {value!r}")
    attends = optional_boolean(value, "attend", False, place)
    return QueryExpansion(length, value["strategy"] == "fixed", attends, token)


def _mask(module: EmbeddingModule) -> dict[str, Any]:
    content, where = checked_object(module.folder / "config.json", tables.MULTI_VECTOR_MASK)
    words, tasks = content.get("skiplist_words") or [], content.get("skiplist_tasks")
    tasks = ["document"] if tasks is None else [tasks] if isinstance(tasks, str) else tasks
    _check_strings({"skiplist_words": words, "skiplist_tasks": tasks}, where)
    return {"skipped_words": tuple(words), "skips_in": tuple(tasks)}


def _token_pooling(module: EmbeddingModule) -> TokenPooling:
    content, where = checked_object(module.folder / "config.json", routed_encoders.HIERARCHICAL_TOKEN_POOLING)
    tasks = content.get("tasks")
    tasks = ["document"] if tasks is None else [tasks] if isinstance(tasks, str) else tasks
    _check_strings({"tasks": tasks}, where)
    normalizes = optional_boolean(content, "normalize_embeddings", False, where)
    numbers = content.get("pool_factor", 1.0), content.get("num_protected_tokens", 1)
    try:
        return TokenPooling(*numbers, normalizes, tuple(tasks))
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _check_strings(lists: dict[str, Any], where: object) -> None:
    for key, value in lists.items():
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise InputError(f"{where}: {key}: expected a list of strings, found {value!r}")
