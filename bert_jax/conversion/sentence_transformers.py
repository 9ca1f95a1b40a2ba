"""Read the files of sentence-transformers: `modules.json`, `1_Pooling/`, `sentence_bert_config.json`, ..."""

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

from bert_jax import storage
from bert_jax.config import BertConfig
from bert_jax.config.values import POOLINGS, EmbeddingLayer
from bert_jax.conversion.checkpoint import CheckpointFiles
from bert_jax.conversion.model_kinds import has_modules
from bert_jax.conversion.module_files import (
    EmbeddingModule,
    ModuleLayout,
    checked_object,
    optional_boolean,
    optional_integer,
)
from bert_jax.conversion.text_settings import MULTI_VECTOR_SIMILARITIES, SIMILARITIES, TextSettings
from bert_jax.errors import InputError, did_you_mean
from bert_jax.head_names import EMBEDDING_HEADS
from bert_jax.lazy import LazyModule
from bert_jax.model_files import FileKey, check_keys
from bert_jax.model_files import sentence_transformers as tables

if TYPE_CHECKING:
    from bert_jax.conversion import embedding_layers, routers, torch_activations, unsupported_modules
    from bert_jax.model_files import multi_vector_encoders
else:  # most models have no layers after the Pooling, no activation, and one vector
    embedding_layers = LazyModule("bert_jax.conversion.embedding_layers")
    routers = LazyModule("bert_jax.conversion.routers")
    torch_activations = LazyModule("bert_jax.conversion.torch_activations")
    unsupported_modules = LazyModule("bert_jax.conversion.unsupported_modules")
    multi_vector_encoders = LazyModule("bert_jax.model_files.multi_vector_encoders")

# Keys of older files -> pooling, in the order in which the vectors of several poolings are concatenated.
POOLING_KEYS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_TRANSFORMERS = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
TRANSFORMER_CONFIGS = tuple(f"sentence_{name}_config.json" for name in _TRANSFORMERS)
_ARGUMENTS: dict[str, tuple[FileKey, ...]] = dict.fromkeys(
    ("model_args", "model_kwargs", "config_args", "config_kwargs"), tables.MODEL_ARGS
)
_ARGUMENTS |= dict.fromkeys(("tokenizer_args", "processor_kwargs"), tables.TOKENIZER_ARGS)
MODULE_PREFIX = "sentence_transformers.models."
# Transformer classes in a model directory's own Python files, which are never run -> the family of these models.
_OWN_TRANSFORMERS = {"custom_st.Transformer": "jina_embeddings_v3"}
_KINDS = (
    "Transformer", "Pooling", "Dense", "LayerNorm", "Normalize", "Dropout", "MLMTransformer", "SpladePooling",
    "MultiVectorMask", "HierarchicalTokenPooling", "StaticEmbedding", "SparseStaticEmbedding",
)  # fmt: skip
_LAYERS = _KINDS[2:6]  # modules that may follow a Pooling
# model_type of config_sentence_transformers.json -> the saved head; any other means sentence embeddings.
_HEADS = {
    "CrossEncoder": "sequence_classification", "SparseEncoder": "sparse_embedding",
    "MultiVectorEncoder": "multi_vector", "ColBERT": "multi_vector",
}  # fmt: skip
_SIMILARITIES = {"sparse_embedding": ("dot", SIMILARITIES), "multi_vector": ("maxsim", MULTI_VECTOR_SIMILARITIES)}
_PACKAGES = ("sentence_transformers.", "pylate.")
# Head -> the task of its Transformer.
_TRANSFORMER_TASKS = {"sequence_classification": "sequence-classification", "sparse_embedding": "fill-mask"}


def embedding_head(root: storage.Path) -> str | None:
    """Return the head of a sentence-transformers directory, one of `EMBEDDING_HEADS`; None for other models.

    Raises:
        InputError: as `read_layout`.
    """
    layout = read_layout(root)
    return layout.head if layout and layout.head in EMBEDDING_HEADS else None


def add_files(files: CheckpointFiles, base: storage.PathLike | None) -> CheckpointFiles:
    """Add the layout of a sentence-transformers directory: config.json and weights are those of its Transformer.

    Raises:
        InputError: as `read_layout`.
    """
    layout = read_layout(files.root)
    return files._replace(layout=layout, directory=layout.transformer if layout else files.root)


def read_layout(root: storage.Path) -> ModuleLayout | None:
    """Read the layout of a sentence-transformers directory; None for any other directory.

    Raises:
        InputError: a file is damaged, or asks for something that is not supported.
    """
    if not has_modules(root):
        return None
    default = (
        EmbeddingModule(f"{MODULE_PREFIX}Transformer", root),
        EmbeddingModule(f"{MODULE_PREFIX}Pooling", root / "1_Pooling"),
    )
    modules, queries, route = _modules(root) if (root / "modules.json").exists() else default, (), "document"
    if modules and modules[0].kind in ("Router", "Asym"):
        modules, queries, route = routers.split_routes(modules)
    where = root / "config_sentence_transformers.json"
    content = storage.read_json(where) if where.exists() else {}
    model_type = "SentenceTransformer" if content.get("model_type") is None else content["model_type"]
    if not isinstance(model_type, str) or not model_type:
        expected = ", ".join(("SentenceTransformer", *_HEADS))
        raise InputError(f"{where}: model_type: expected {expected}, found {model_type!r}")
    head = _HEADS.get(model_type, "sentence_embedding")
    if any(module.kind == "SpladePooling" for module in modules):  # older files have no model_type
        head = "sparse_embedding"
    late = head == "multi_vector"
    check_keys(
        content, multi_vector_encoders.MULTI_VECTOR_CONFIG if late else tables.CONFIG_SENTENCE_TRANSFORMERS, where
    )
    if activation := content.get("activation_fn") or "":
        activation = torch_activations.read_activation(activation, where, "softmax")
    layout = ModuleLayout(root, head, model_type, modules, TextSettings(), queries, route)
    settings = TextSettings(
        **_prompts(content, where),
        **_of_transformer(layout.transformer, "sentence_embedding" if layout.classifies_embedding else head),
        similarity=_similarity(content, *_SIMILARITIES.get(head, ("cosine", SIMILARITIES)), where),
        max_active_dims=optional_integer(content, "max_active_dims", where),
        truncate_dim=optional_integer(content, "truncate_dim", where),
        cross_encoder=head == "sequence_classification",
        activation=activation,
    )
    return layout._replace(settings=settings)


class EmbeddingSettings(NamedTuple):
    """The modules of a directory that compute sentence embeddings from token vectors.

    Attributes:
        config: the config with the fields of sentence embeddings set.
        settings: all settings of the directory.
        folders: number of an embedding layer -> the directory of its parameters.
        query_weights: the module with a weight for each token of a query, or None.
    """

    config: BertConfig
    settings: TextSettings
    folders: dict[int, storage.Path]
    query_weights: EmbeddingModule | None = None


def read_embedding(layout: ModuleLayout, config: BertConfig) -> EmbeddingSettings:
    """Read the modules after the Transformer: pooling, dense layers and normalisation.

    Raises:
        InputError: a module asks for something that is not supported.
    """
    where = layout.root / "modules.json"
    if layout.model_type != "SentenceTransformer":
        raise InputError(
            f"{layout.root / 'config_sentence_transformers.json'}: model_type: expected SentenceTransformer, "
            f"found {layout.model_type!r}"
        )
    kinds = [module_kind(module, where, config.family) for module in layout.modules]
    if layout.is_static:  # the mean of the vectors of tokens is taken without a Pooling
        kinds = ["Transformer", "Pooling", *kinds[1:]]
    if kinds[:2] != ["Transformer", "Pooling"] or {"Transformer", "Pooling", "StaticEmbedding"} & set(kinds[2:]):
        raise InputError(
            f"{where}: expected a Transformer, a Pooling, and then {', '.join(_LAYERS)}, found {', '.join(kinds)}"
        )
    first = 1 if layout.is_static else 2
    modes, include_prompt = (["mean"], True) if first == 1 else _pooling(layout.modules[1].folder, config)
    config = config.replace(pooling="+".join(modes), embedding_layers=(), normalize_embeddings=kinds[-1] == "Normalize")
    behind = layout.modules[first:-1] if kinds[-1] == "Normalize" else layout.modules[first:]
    if kinds[-1] == "Normalize":
        checked_object(layout.modules[-1].folder / "config.json", tables.NORMALIZE)
    layers: list[EmbeddingLayer] = []
    folders = {}
    for number, module in enumerate(behind):
        width = layers[-1].features if layers else config.sentence_embedding_size
        layers.append(embedding_layers.read_layer(module, width))
        if layers[-1].kind in ("dense", "layer_norm"):
            folders[number] = module.folder
    settings = dataclasses.replace(layout.settings, include_prompt=include_prompt)
    return EmbeddingSettings(config.replace(embedding_layers=tuple(layers)), settings, folders)


def _modules(root: storage.Path) -> tuple[EmbeddingModule, ...]:
    path = root / "modules.json"
    listed = storage.parse_json(storage.read_text(path), path)
    if not isinstance(listed, list) or not all(
        isinstance(module, dict) and isinstance(module.get("type"), str) and isinstance(module.get("path"), str)
        for module in listed
    ):
        raise InputError(f"{path}: expected a list of modules with a type and a path")
    for number, module in enumerate(listed):
        check_keys(module, tables.MODULES, f"{path}: module {number}")
        if ".." in module["path"].split("/") or module["path"].startswith("/"):
            raise InputError(f"{path}: module path {module['path']!r} leads out of the directory")
    return tuple(EmbeddingModule(m["type"], root / m["path"] if m["path"] else root) for m in listed)


def module_kind(module: EmbeddingModule, where: object, family: str = "") -> str:
    """Return the class of a module. Raises InputError when it is not known, or not known in a family."""
    if family and _OWN_TRANSFORMERS.get(module.type) == family:
        return module.kind
    if module.kind not in _KINDS or not module.type.startswith(_PACKAGES):
        unsupported_modules.refuse_module(module, ", ".join(_KINDS), where)
    return module.kind


def transformer_config(folder: storage.Path, table: tuple[FileKey, ...]) -> tuple[dict[str, Any], storage.Path]:
    """Read the first file of TRANSFORMER_CONFIGS that is not empty; return it with its path.

    Raises:
        InputError: the file is damaged, or asks for something that is not supported.
    """
    for name in TRANSFORMER_CONFIGS:
        content, where = checked_object(folder / name, table)
        if content:
            break
    return content, where


def _of_transformer(folder: storage.Path, head: str) -> dict[str, Any]:
    """Read `max_length`, `task` and `lowercase` from the file of the Transformer."""
    late, expected = head == "multi_vector", _TRANSFORMER_TASKS.get(head, "feature-extraction")
    content, where = transformer_config(
        folder, multi_vector_encoders.MULTI_VECTOR_TRANSFORMER if late else tables.SENTENCE_BERT_CONFIG
    )
    kind = content.get("transformer_task")
    if kind not in (None, expected):
        raise InputError(f"{where}: transformer_task: expected {expected!r}, found {kind!r}")
    limit, task = optional_integer(content, "max_seq_length", where), ""
    for key, table in _ARGUMENTS.items():
        arguments = content.get(key) or {}
        if not isinstance(arguments, dict):
            raise InputError(f"{where}: {key}: expected an object, found {arguments!r}")
        check_keys(arguments, table, f"{where}: {key}")
        limit = optional_integer(arguments, "model_max_length", f"{where}: {key}") or limit
        task = arguments.get("default_task") or task
    if not isinstance(task, str):
        raise InputError(f"{where}: default_task: expected the name of a task, found {task!r}")
    lowercase = optional_boolean(content, "do_lower_case", False, where)
    return {"max_length": limit, "task": task, "lowercase": lowercase}


def _prompts(content: dict[str, Any], where: storage.Path) -> dict[str, Any]:
    prompts, default = content.get("prompts") or {}, content.get("default_prompt_name") or ""
    texts = list(prompts.values()) if isinstance(prompts, dict) else [None]
    if not isinstance(prompts, dict) or not all(isinstance(text, str) for text in texts if text is not None):
        raise InputError(f"{where}: prompts: expected an object that maps names to strings, found {prompts!r}")
    if not isinstance(default, str) or (default and default not in {*prompts, "query", "document"}):
        known = ", ".join(prompts) or "none"
        raise InputError(f"{where}: default_prompt_name: expected one of the prompts ({known}), found {default!r}")
    return {
        "prompts": tuple((name, text or "") for name, text in ({default: ""} | prompts).items() if name),
        "default_prompt": default,
    }


def _similarity(content: dict[str, Any], default: str, known: tuple[str, ...], where: storage.Path) -> str:
    name = content.get("similarity_fn_name") or default
    if "maxsim" in known and name in (*SIMILARITIES, "MaxSim"):  # PyLate's files; its models compare by MaxSim
        return default
    if name not in known:
        hint = did_you_mean(str(name), known)
        raise InputError(f"{where}: similarity_fn_name: expected {', '.join(known)}, found {name!r}{hint}")
    return name


def _pooling(folder: storage.Path, config: BertConfig) -> tuple[list[str], bool]:
    """Read the config of a Pooling module: its poolings, and whether the tokens of a prompt are pooled."""
    content, where = checked_object(folder / "config.json", tables.POOLING)
    if not content:
        raise InputError(f"{where}: expected pooling_mode, found none")
    mode = content.get("pooling_mode")
    if mode is None:
        mode = [ours for key, ours in POOLING_KEYS.items() if optional_boolean(content, key, False, where)] or "mean"
    modes = [mode] if isinstance(mode, str) else mode
    if not isinstance(modes, list) or not modes or not all(mode in POOLINGS for mode in modes):
        raise InputError(f"{where}: pooling_mode: expected {', '.join(POOLINGS)} or a list of these, found {mode!r}")
    for key in ("embedding_dimension", "word_embedding_dimension"):
        if optional_integer(content, key, where) not in (None, config.hidden_size):
            raise InputError(f"{where}: {key}: expected {config.hidden_size} as config.json says, found {content[key]}")
    return modes, optional_boolean(content, "include_prompt", True, where)
