"""`BertConfig`, the architecture of a model: its fields, their values, and the keys of `config.json`."""

from bert_jax.config.bert_config import BertConfig

__all__ = ["BertConfig"]
