"""Read and write the modules of a SparseEncoder of sentence-transformers: a masked LM and its pooling."""

from typing import Any

from bert_jax.config import BertConfig
from bert_jax.config.values import SPLADE_POOLINGS
from bert_jax.conversion.module_files import ModuleLayout, checked_object
from bert_jax.conversion.sentence_transformers import EmbeddingSettings, module_kind
from bert_jax.errors import InputError
from bert_jax.model_files import routed_encoders as tables

# Values in the config.json of a SpladePooling -> the parts of our name of the pooling.
_STRATEGIES = {"max": "splade_max", "sum": "splade_sum"}
_ACTIVATIONS = {"relu": "", "log1p_relu": "_log1p"}


def read_sparse(layout: ModuleLayout, config: BertConfig) -> EmbeddingSettings:
    """Read the modules of a SparseEncoder.

    Raises:
        InputError: a module asks for something that is not supported.
    """
    where = layout.root / "modules.json"
    kinds = [module_kind(module, where) for module in layout.modules]
    settings, queries = layout.settings, None
    if kinds not in (["MLMTransformer", "SpladePooling"], ["Transformer", "SpladePooling"]):
        raise InputError(f"{where}: expected an MLMTransformer and a SpladePooling, found {', '.join(kinds)}")
    content, where = checked_object(layout.modules[1].folder / "config.json", tables.SPLADE_POOLING)
    parts = []
    for key, known in (("pooling_strategy", _STRATEGIES), ("activation_function", _ACTIVATIONS)):
        value = content.get(key, next(iter(known)))
        if value not in known:
            raise InputError(f"{where}: {key}: expected {' or '.join(known)}, found {value!r}")
        parts.append(known[value])
    if layout.query_modules:
        from bert_jax.conversion.query_weights import read_query_settings

        queries = layout.query_modules[0]
        config, settings = read_query_settings(layout, config, settings)
    return EmbeddingSettings(config.replace(pooling="".join(parts)), settings, {}, queries)


def splade_pooling_json(config: BertConfig) -> dict[str, Any]:
    """Return the config.json of a SpladePooling."""
    pooling = config.pooling if config.pooling in SPLADE_POOLINGS else SPLADE_POOLINGS[0]
    return {
        "pooling_strategy": next(name for name, part in _STRATEGIES.items() if pooling.startswith(part)),
        "activation_function": "log1p_relu" if pooling.endswith("log1p") else "relu",
        "embedding_dimension": config.vocab_size,
    }
