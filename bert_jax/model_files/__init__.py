"""The treatment of every key in the files beside a model's weights: one table per file, and the check against it."""

from bert_jax.model_files.keys import FileKey, check_keys, harmless, honoured, refused

__all__ = ["FileKey", "check_keys", "harmless", "honoured", "refused"]
