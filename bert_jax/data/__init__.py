"""Input data: corpora -> documents -> examples -> batches; a batch is a pure function of the step."""

from typing import TYPE_CHECKING

from bert_jax.lazy import lazy_attributes

if TYPE_CHECKING:
    from bert_jax.data.table_formats import register_reader

__all__ = ["register_reader"]
__getattr__, __dir__ = lazy_attributes(__name__, {"bert_jax.data.table_formats": ("register_reader",)})
