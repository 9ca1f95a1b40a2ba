"""Write the files of sentence-transformers beside those of a BERT."""

import json
from typing import Any

from bert_jax import storage
from bert_jax.config import BertConfig
from bert_jax.config.values import POOLINGS, EmbeddingLayer
from bert_jax.conversion.formats.lazy_tensors import Tensors
from bert_jax.conversion.multi_vector_encoders import multi_vector_json
from bert_jax.conversion.sentence_transformers import (
    MODULE_PREFIX,
    POOLING_KEYS,
    TRANSFORMER_CONFIGS,
)
from bert_jax.conversion.sparse_encoders import splade_pooling_json
from bert_jax.conversion.text_settings import TextSettings
from bert_jax.conversion.torch_activations import TORCH_ACTIVATIONS

_ON_TOKENS = {"module_input_name": "token_embeddings", "module_output_name": "token_embeddings"}
_TOKEN_POOLING = "HierarchicalTokenPooling"
_SPARSE_PREFIX = "sentence_transformers.sparse_encoder.models."


def torch_activation(name: str) -> str:
    """Return the class of torch.nn for our name of an activation."""
    classes = {ours: theirs for theirs, ours in TORCH_ACTIVATIONS.items()}
    return f"torch.nn.modules.{'linear' if name == 'identity' else 'activation'}.{classes[name]}"


def write_layout(
    directory: storage.Path, config: BertConfig, settings: TextSettings, late: bool = False, classifies: bool = False
) -> dict[Any, storage.Path]:
    """Write the files that make a directory with a BERT a sentence-transformers model.

    Args:
        directory: the directory.
        config: the architecture.
        settings: the settings to write, such as prompts.
        late: whether the model has a vector for each token (a MultiVectorEncoder), not one for each text.
        classifies: whether the model is a classifier over the vector of a text (a CrossEncoder).

    Returns:
        Number of an embedding layer, or `CLASSIFIER` -> the directory for its parameters.
    """
    layers = [(layer.kind.title().replace("_N", "N"), layer) for layer in config.embedding_layers]
    static = not config.num_hidden_layers  # its vectors of texts are means already
    first = "MultiVectorMask" if late else "Pooling"
    behind = [
        *([] if static else [(first, None)]),
        *layers,
        *([("Normalize", None)] if config.normalize_embeddings else []),
    ]
    token_pooling = multi_vector_json(settings)["pooling"] if late else {}
    behind += [(_TOKEN_POOLING, None)] if token_pooling else []
    listed = [("", f"{MODULE_PREFIX}{'StaticEmbedding' if static else 'Transformer'}")]
    prefixes = dict.fromkeys(("MultiVectorMask", _TOKEN_POOLING), "sentence_transformers.multi_vector_encoder.modules.")
    listed += [(f"{i}_{kind}", f"{prefixes.get(kind, MODULE_PREFIX)}{kind}") for i, (kind, _) in enumerate(behind, 1)]
    folders: dict[Any, storage.Path] = {}
    if classifies:
        from bert_jax.conversion.embedding_classifiers import CLASSIFIER, classifier_json

        folders[CLASSIFIER] = directory / f"{len(listed)}_Dense"
        listed.append((folders[CLASSIFIER].name, f"{MODULE_PREFIX}Dense"))
        folders[CLASSIFIER].mkdir(exist_ok=True)
        _write_json(folders[CLASSIFIER] / "config.json", classifier_json(config))
    kind = "MultiVectorEncoder" if late else "CrossEncoder" if classifies else "SentenceTransformer"
    _write_modules(directory, listed, settings, kind)
    for number, (kind, layer) in enumerate(behind):
        folder = directory / f"{number + 1}_{kind}"
        folder.mkdir(exist_ok=True)
        content = _pooling_json(config, settings) if kind == "Pooling" else _layer_json(layer) if layer else None
        if late:
            of_module = {first: multi_vector_json(settings)["mask"], _TOKEN_POOLING: token_pooling}
            content = of_module[kind] if kind in of_module else (content or {}) | _ON_TOKENS
        if content is not None:
            _write_json(folder / "config.json", content)
        if kind in ("Dense", "LayerNorm"):
            folders[number - (not static)] = folder
    return folders


def write_sparse_encoder(
    directory: storage.Path, config: BertConfig, settings: TextSettings, tensors: Tensors, tokenizer: Any
) -> None:
    """Write the files that make a directory with a masked LM a SparseEncoder of sentence-transformers.

    Weights of the tokens of queries are moved from `tensors` to a folder of their own, with the tokenizer.
    """
    pooling = "1_SpladePooling"
    listed = [("", f"{_SPARSE_PREFIX}MLMTransformer"), (pooling, f"{_SPARSE_PREFIX}SpladePooling")]
    if config.query_weights:
        from bert_jax.conversion import query_weights

        listed, pooling = query_weights.routed_modules()
        query_weights.write_query_weights(directory, config, settings, tensors, tokenizer)
    _write_modules(directory, listed, settings, "SparseEncoder")
    (directory / pooling).mkdir(exist_ok=True)
    _write_json(directory / pooling / "config.json", splade_pooling_json(config))


def write_cross_encoder(directory: storage.Path, settings: TextSettings) -> None:
    """Write the files of a cross-encoder."""
    _write_modules(directory, [("", f"{MODULE_PREFIX}Transformer")], settings, "CrossEncoder")


def _write_modules(
    directory: storage.Path,
    listed: list[tuple[str, str]],
    settings: TextSettings,
    model_type: str = "SentenceTransformer",
) -> None:
    """Write the files that every kind of model has; `listed` has the directory and the class of each module."""
    modules = [{"idx": i, "name": str(i), "path": path, "type": kind} for i, (path, kind) in enumerate(listed)]
    _write_json(directory / "modules.json", modules)
    own: dict[str, Any] = {} if settings.max_length is None else {"max_seq_length": settings.max_length}
    own |= {"do_lower_case": settings.lowercase}
    about: dict[str, Any] = {"model_type": model_type, "prompts": dict(settings.prompts)}
    about["default_prompt_name"] = settings.default_prompt or None
    if model_type == "CrossEncoder":
        own["transformer_task"] = "feature-extraction" if len(listed) > 1 else "sequence-classification"
        if settings.activation:
            about["activation_fn"] = torch_activation(settings.activation)
    else:
        about["similarity_fn_name"] = settings.similarity
        if model_type == "MultiVectorEncoder":
            own |= multi_vector_json(settings)["transformer"]
            about |= multi_vector_json(settings)["model"]
        for key in ("truncate_dim", "max_active_dims"):
            if (value := getattr(settings, key)) is not None:
                about[key] = value
    if not listed[0][1].endswith("StaticEmbedding"):  # it reads all of a text, as it is
        _write_json(directory / TRANSFORMER_CONFIGS[0], own)
    _write_json(directory / "config_sentence_transformers.json", about)


def _pooling_json(config: BertConfig, settings: TextSettings) -> dict[str, Any]:
    content: dict[str, Any] = {"word_embedding_dimension": config.hidden_size}
    in_order = [mode for mode in POOLINGS if mode in config.poolings] == list(config.poolings)
    if in_order:  # every version understands this form
        content |= {key: mode in config.poolings for key, mode in POOLING_KEYS.items()}
    else:
        content["pooling_mode"] = list(config.poolings)
    return content if settings.include_prompt else content | {"include_prompt": False}


def _layer_json(layer: EmbeddingLayer) -> dict[str, Any] | None:
    if layer.kind == "dense":
        content: dict[str, Any] = {"in_features": layer.inputs, "out_features": layer.features, "bias": layer.bias}
        content["activation_function"] = torch_activation(layer.activation)
        return content | ({"use_residual": True} if layer.residual else {})
    if layer.kind == "layer_norm":
        return {"dimension": layer.features}
    return {"dropout": layer.rate} if layer.kind == "dropout" else None


def _write_json(path: storage.Path, value: Any) -> None:
    storage.write_atomically(path, json.dumps(value, indent=2) + "\n")
