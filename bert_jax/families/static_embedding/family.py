"""Static embeddings: a table with a vector for each token, whose mean is the vector of a text.

They are the StaticEmbedding of sentence-transformers and the models of model2vec (https://github.com/MinishLab/model2vec).
"""

from typing import Any

import numpy as np

from bert_jax.config.positions import PositionsConfig
from bert_jax.errors import InputError
from bert_jax.families.base import Family, Json
from bert_jax.families.names import Entry, NamedTensors, Names
from bert_jax.families.static_embedding.parts import NoLayersConfig
from bert_jax.model_files.routed_encoders import STATIC_EMBEDDING

_TABLE, _MAPPING, _WEIGHTS = "embeddings", "mapping", "weights"  # names of model2vec
_MOST_TOKENS = 1_000_000  # as model2vec's seq_length; there are no positions

_WIDTHS = {"tiny": 32, "mini": 64, "small": 128, "medium": 192, "base": 256, "large": 512}  # base as in model2vec


def _merged(tensors: NamedTensors) -> NamedTensors:
    """Return one vector for each token: model2vec may store fewer vectors, with the vector and weight of each token."""
    named = {_TABLE if name == "embedding.weight" else name: tensor for name, tensor in tensors.items()}
    table, mapping, weights = (named.pop(name, None) for name in (_TABLE, _MAPPING, _WEIGHTS))
    if table is None:
        return named
    rows = mapping.shape[0] if mapping is not None else table.shape[0]
    for name, tensor in ((_MAPPING, mapping), (_WEIGHTS, weights)):
        if tensor is not None and tensor.shape != (rows,):
            raise InputError(f"tensor {name!r}: expected shape [{rows}], found {list(tensor.shape)}")

    def read() -> np.ndarray:
        values: np.ndarray = table.read()
        if mapping is not None:
            numbers = mapping.read()
            if not (numbers.min() >= 0 and numbers.max() < len(values)):
                raise InputError(f"tensor {_MAPPING!r}: expected rows of {_TABLE!r}, found {numbers.max()}")
            values = values[numbers]
        if weights is None:
            return values if values.dtype.kind != "i" else values.astype(np.float32)
        wide = np.float64 if values.dtype == np.float64 else np.float32
        product = values.astype(wide) * weights.read()[:, None]
        return product.astype(values.dtype if values.dtype.kind != "i" else np.float32)

    dtype = np.dtype(np.float32) if table.dtype.kind == "i" else table.dtype
    return named | {_TABLE: type(table)((rows, *table.shape[1:]), dtype, read)}


def _normalizes(hf: Json) -> Json:
    value = hf.get("normalize", False)
    if not isinstance(value, bool):
        raise InputError(f"normalize must be true or false, found {value!r}")
    return {"normalize_embeddings": value}


def _writes(fields: dict[str, Any]) -> Json:
    return {"normalize": fields["normalize_embeddings"]}


STATIC_EMBEDDING_FAMILY = Family(
    name="static_embedding",
    title="static embeddings",
    file_keys=STATIC_EMBEDDING,
    names=Names(
        prefix="",
        encoder=(Entry(_TABLE, "embeddings/word_embeddings/embedding"),),
        heads={},
        architectures=dict.fromkeys(("encoder", "sentence_embedding"), "StaticModel"),
        other_architectures={"StaticModel": "sentence_embedding"},
        older=_merged,
    ),
    sizes={name: (0, width, 1, 1) for name, width in _WIDTHS.items()},
    model_type="model2vec",
    other_model_types=("model2vec",),
    classes="Static",
    required=(),
    keys={
        "vocab_size": "vocab_size",
        "hidden_size": "hidden_dim",
        "num_attention_heads": "num_attention_heads",
        "pad_token_id": "pad_token_id",
        "initializer_range": "initializer_range",
    },
    defaults={"num_attention_heads": 1},
    fixed={
        "num_hidden_layers": 0,
        "intermediate_size": 1,
        "stack": NoLayersConfig(),
        "positions": PositionsConfig(),
        "max_position_embeddings": _MOST_TOKENS,
        "type_vocab_size": 0,
        "embedding_norm": False,
        "hidden_dropout_prob": 0.0,
    },
    reads=_normalizes,
    writes=_writes,
    token_types=False,
)
