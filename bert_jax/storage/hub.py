"""Locate a model: a local or `gs://` directory, or a name on the Hugging Face hub."""

from bert_jax import storage
from bert_jax.errors import InputError


def locate(path: storage.PathLike) -> storage.Path:
    """Return the model directory that `path` names, downloading it from the Hugging Face hub if necessary.

    An existing directory is returned unchanged. The hub is used for `hf://ORG/NAME`, for `ORG/NAME` if no local
    directory `ORG` exists, and for `NAME` if no local directory has a similar name; it needs `huggingface_hub`. Models
    in the hub's cache are also found offline.

    Raises:
        InputError: there is no such directory, and the hub does not provide it.
    """
    name = str(path)
    if not name.startswith("hf://"):
        directory = storage.Path(path)
        if directory.is_dir():
            return directory
        if directory.exists():
            raise InputError(f"{name}: expected a model directory (config.json, model.safetensors, ...), found a file")
    from bert_jax.storage import hub_downloads

    return hub_downloads.download(name)
