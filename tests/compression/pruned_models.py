"""Small models for the tests here, whose parts are not alike."""

from typing import Any

import jax
import numpy as np

from bert_jax.config import BertConfig
from bert_jax.modeling import Bert, Params

SHAPE: dict[str, Any] = {
    "vocab_size": 50, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 24, "num_hidden_layers": 4,
    "max_position_embeddings": 32, "pad_token_id": 1,
}  # fmt: skip


def small(family: str = "bert", head: str = "encoder", **changes: Any) -> tuple[BertConfig, Params]:
    """A config of a family, and random parameters."""
    config = BertConfig.named("tiny", family, **SHAPE | changes)
    return config, random_params(config, head)


def random_params(config: BertConfig, head: str) -> Params:
    random = np.random.default_rng(0)
    shapes = Bert(config, head).abstract_params()
    return jax.tree.map(lambda leaf: random.normal(0, 0.1, leaf.shape).astype(np.float32), shapes)


def last_hidden_state(config: BertConfig, params: Params, ids: np.ndarray) -> np.ndarray:
    return np.asarray(Bert(config).apply(params, ids).last_hidden_state)
