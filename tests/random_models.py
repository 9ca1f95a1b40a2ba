"""Models with random parameters."""

import functools
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bert_jax.config import BertConfig
from bert_jax.conversion.huggingface import save_pretrained
from bert_jax.families import FAMILIES
from bert_jax.modeling import Bert
from bert_jax.tokenization import Tokenizer

# Families whose models have layers, unlike static embeddings.
WITH_LAYERS = [name for name, family in FAMILIES.items() if family.fixed.get("num_hidden_layers") != 0]


@functools.cache  # many files of tests start from the same model
def initial_params(config: BertConfig, head: str = "encoder", seed: int = 0) -> Any:
    """The parameters that training starts from; not jitted, as the operations of one model are those of the next."""
    return jax.device_get(Bert(config, head).init(jax.random.key(seed)))


def normal_params(config: BertConfig, head: str, scale: float, seed: int = 0) -> Any:
    """Parameters from one normal distribution, those of biases and LayerNorms too, so that no two are alike."""
    generator = np.random.default_rng(seed)
    shapes = Bert(config, head).abstract_params()
    return jax.tree.map(lambda leaf: generator.normal(0, scale, leaf.shape).astype(np.float32), shapes)


def write_model(
    path: Path | str, config: BertConfig, head: str = "encoder", tokenizer: Tokenizer | None = None, seed: int = 0
) -> Path:
    """Write a model with initial parameters."""
    save_pretrained(path, config, head, initial_params(config, head, seed), tokenizer)
    return Path(path)
