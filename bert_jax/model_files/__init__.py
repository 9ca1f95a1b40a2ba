"""What each key of the files beside a model's weights means here: one table a file, and the check that walks it."""

from bert_jax.model_files.keys import FileKey, check_keys, harmless, honoured, refused

__all__ = ["FileKey", "check_keys", "harmless", "honoured", "refused"]
