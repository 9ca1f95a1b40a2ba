"""`BertConfig`, the architecture of a model: its fields, their values, and the keys of `config.json`."""

from typing import TYPE_CHECKING

from bert_jax.lazy import lazy_attributes

if TYPE_CHECKING:
    from bert_jax.config.bert_config import BertConfig

__all__ = ["BertConfig"]
# The command line reads the tables of values without NumPy.
__getattr__, __dir__ = lazy_attributes(__name__, {"bert_jax.config.bert_config": ("BertConfig",)})
