"""Small model directories for the tests here, in which no two parameters are alike."""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import safetensors.numpy

from bert_jax.config import BertConfig
from bert_jax.conversion.huggingface import save_pretrained
from bert_jax.modeling import Bert

SHAPE: dict[str, Any] = {
    "vocab_size": 31, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 12,
    "max_position_embeddings": 10, "pad_token_id": 1, "num_labels": 3,
}  # fmt: skip


def write_model(directory: Path, family: str = "bert", head: str = "encoder", **changes: Any) -> BertConfig:
    """Saves a model of a family with random parameters."""
    own = {"intermediate_size": 16} if family == "neobert" else {}  # a multiple of 8
    config = BertConfig.named("tiny", family, **SHAPE | own | changes)
    generator = np.random.default_rng(0)
    shapes = Bert(config, head).abstract_params()
    params = jax.tree.map(lambda leaf: generator.normal(0.0, 0.05, leaf.shape).astype(np.float32), shapes)
    save_pretrained(directory, config, head, params)
    return config


def tensors_of(directory: Path) -> dict[str, np.ndarray]:
    return safetensors.numpy.load_file(directory / "model.safetensors")


def edit(directory: Path, **changes: Any) -> None:
    """Changes keys of config.json; None takes one out."""
    path = directory / "config.json"
    content = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


def equal(a: Any, b: Any) -> bool:
    return jax.tree.structure(a) == jax.tree.structure(b) and all(jax.tree.leaves(jax.tree.map(np.array_equal, a, b)))
