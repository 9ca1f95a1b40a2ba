"""`BertConfig`, the architecture of a model: its fields, their values, and the keys of `config.json`."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bert_jax.config.bert_config import BertConfig

__all__ = ["BertConfig"]


def __getattr__(name: str) -> Any:  # imported on first use: the command line reads the tables of values without NumPy
    if name != "BertConfig":
        raise AttributeError(f"module 'bert_jax.config' has no attribute {name!r}")
    from bert_jax.config.bert_config import BertConfig

    return BertConfig
