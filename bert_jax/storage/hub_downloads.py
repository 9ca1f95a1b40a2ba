"""Download models of the Hugging Face hub."""

import difflib
import fnmatch
import re

from bert_jax import storage
from bert_jax.errors import InputError

_HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w.-]+)?")
_SECONDS = 2.5  # seconds to connect to the hub, and again to read its response
# Patterns of the files that this package reads, besides the weights: settings and vocabularies, the numbered folders
# of sentence-transformers' modules, BGE-M3's layers, and adapters.
_SETTINGS = [
    "*.json",
    "*.txt",
    "*.model",
    "*.codes",
    "[0-9]*_*/*",
    "sparse_linear.pt",
    "colbert_linear.pt",
    "adapter_*",
]
# Patterns of the weights by format, in the order of `conversion.weights`; the first that a model has is downloaded.
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin", "*.ckpt*", "flax_model*.msgpack")


def download(name: str) -> storage.Path:
    """Download a model by its name on the hub, with or without `hf://`, and return its directory.

    Raises:
        InputError: the name is a misspelt path, or the hub does not provide the model.
    """
    hub_name = name.removeprefix("hf://")
    if hub_name == name:
        # If there is a local folder `runs`, `runs/model` is a misspelt path, not a name on the hub.
        directory = storage.Path(name)
        organisation, _, rest = name.partition("/")
        misspelt = storage.Path(organisation).exists() if rest else bool(_near(directory))
        if misspelt or not _HUB_NAME.fullmatch(name):
            raise InputError(f"{name}: no such model directory{_near(directory)}")
    try:
        import huggingface_hub  # noqa: F401
    except ImportError:
        raise InputError(
            f"{name}: no such model directory, and huggingface_hub, which downloads models, is not installed"
            f"{_how_to_get(hub_name, 'pip install huggingface_hub` and `')}"
        ) from None
    try:
        return storage.Path(_snapshot(hub_name))
    except Exception as error:  # huggingface_hub raises errors of several libraries
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        near = _near(storage.Path(hub_name))
        if type(error).__name__ == "RepositoryNotFoundError":
            raise InputError(
                f"{name}: no such model directory, and no such model on the Hugging Face hub, unless it is private "
                f"(`hf auth login`){near}"
            ) from None
        raise InputError(
            f"{name}: no such model directory, and the Hugging Face hub did not provide it ({reason[:150]})"
            f"{near}{_how_to_get(hub_name)}"
        ) from None


def _snapshot(hub_name: str) -> str:
    """Download a model's settings and its weights in one format, and return the directory.

    Without a connection, the directory in the hub's cache is returned.
    """
    import huggingface_hub

    try:  # a single request, as `snapshot_download` would retry listing the files for 24 s
        info = huggingface_hub.HfApi().model_info(hub_name, timeout=_SECONDS)
        files = [file.rfilename for file in info.siblings or ()]
    except Exception as error:  # errors of several libraries
        try:
            return huggingface_hub.snapshot_download(hub_name, allow_patterns=_SETTINGS, local_files_only=True)
        except Exception:
            raise error from None
    weights = [form for form in _WEIGHTS if any("/" not in name for name in fnmatch.filter(files, form))]
    return huggingface_hub.snapshot_download(hub_name, allow_patterns=[*_SETTINGS, *weights[:1]])


def _near(directory: storage.Path) -> str:
    """Return a hint with a directory whose name is similar to a missing one, or ""."""
    if storage.is_remote(directory):
        return ""
    parent = directory.parent
    try:
        there = sorted(path.name for path in parent.iterdir() if path.is_dir()) if parent.is_dir() else []
    except OSError:
        return ""
    near = difflib.get_close_matches(directory.name, there, n=1, cutoff=0.6)
    return f"; did you mean {str(parent / near[0])!r}?" if near else ""


def _how_to_get(name: str, before: str = "") -> str:
    """Return a hint on how to download a model, with `before` in front; "" if `name` cannot be on the hub."""
    if not re.fullmatch(r"[\w-][\w.-]*(/[\w-][\w.-]*)?", name):
        return ""
    return (
        f"; to download a model of the Hugging Face hub, run `{before}hf download {name} --local-dir "
        f"{name.split('/')[-1]}` on a machine that can reach it"
    )
