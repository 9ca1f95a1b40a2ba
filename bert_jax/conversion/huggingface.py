"""Load, save and convert model directories: config.json, weights and tokenizer in the Hugging Face layout."""

from typing import TYPE_CHECKING

from bert_jax.lazy import lazy_attributes

if TYPE_CHECKING:
    from bert_jax.conversion.convert import convert
    from bert_jax.conversion.load_pretrained import Loaded, load_pretrained, saved_head
    from bert_jax.conversion.save_pretrained import save_description, save_pretrained

__all__ = ["Loaded", "convert", "load_pretrained", "save_description", "save_pretrained", "saved_head"]

# Imported on first use, so that loading a model does not import the modules that save one.
__getattr__, __dir__ = lazy_attributes(
    __name__,
    {
        "bert_jax.conversion.convert": ("convert",),
        "bert_jax.conversion.load_pretrained": ("Loaded", "load_pretrained", "saved_head"),
        "bert_jax.conversion.save_pretrained": ("save_description", "save_pretrained"),
    },
)
