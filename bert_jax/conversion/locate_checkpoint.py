"""Find the files of a model: of a directory or a name on the hub, a file of weights, an adapter with its base model."""

from typing import TYPE_CHECKING, NamedTuple

from bert_jax import storage
from bert_jax.conversion.model_kinds import GLINER_FILE, ConfigLike, has_modules, is_adapter, is_file
from bert_jax.errors import InputError
from bert_jax.storage import hub
from bert_jax.tokenization import has_tokenizer

if TYPE_CHECKING:
    from bert_jax.conversion.adapters import AdapterFiles
    from bert_jax.conversion.gliner import GlinerFiles
    from bert_jax.conversion.sentence_transformers import ModuleLayout


class CheckpointFiles(NamedTuple):
    """Where the files of a model are.

    Attributes:
        root: the directory of the model; a file of weights.
        directory: the directory of config.json and the weights: `root`, a module's, or that of an adapter's base model.
        is_bare: whether there are weights alone, and the config is elsewhere.
        layout: the modules of a sentence-transformers directory.
        gliner: the description of a GLiNER.
        adapter: a LoRA adapter to merge into the model.
    """

    root: storage.Path
    directory: storage.Path
    is_bare: bool = False
    layout: "ModuleLayout | None" = None
    gliner: "GlinerFiles | None" = None
    adapter: "AdapterFiles | None" = None


def locate_checkpoint(
    path: storage.PathLike, base: storage.PathLike | None, config: ConfigLike | None
) -> CheckpointFiles:
    """Find the files of a model; the files of other kinds than a plain directory are read by their own modules.

    Args:
        path, base, config: as for `bert_jax.conversion.huggingface.load_pretrained`.

    Raises:
        InputError: there is no such directory, or its description of the kind of the model is damaged.
    """
    if is_file(path):
        return CheckpointFiles(storage.Path(path), storage.Path(path), is_bare=True)
    root = hub.locate(path)
    if config is not None:
        return CheckpointFiles(root, root, is_bare=True)
    layout = _read_layout(root) if has_modules(root) else None
    directory = layout.transformer if layout else root
    if (root / GLINER_FILE).exists():
        return CheckpointFiles(root, directory, layout=layout, gliner=_read_gliner(root, base))
    if is_adapter(directory):
        adapter = _find_adapter(directory, base)
        return CheckpointFiles(root, adapter.base, layout=layout, adapter=adapter)
    if base is not None:
        raise InputError(f"{directory}: expected an adapter (adapter_config.json) for the base model, found none")
    return CheckpointFiles(root, directory, layout=layout)


def locate_tokenizer(path: storage.PathLike) -> storage.Path:
    """Return the directory or file of a tokenizer. Raises InputError when there is none."""
    found = storage.Path(path)
    if not found.exists() or not has_tokenizer(found):
        raise InputError(f"{found}: expected a vocabulary file, or a directory with a tokenizer, found none")
    return found


def _read_layout(root: storage.Path) -> "ModuleLayout | None":
    from bert_jax.conversion.sentence_transformers import read_layout

    return read_layout(root)


def _read_gliner(root: storage.Path, base: storage.PathLike | None) -> "GlinerFiles":
    from bert_jax.conversion.gliner import read_gliner

    return read_gliner(root, base)


def _find_adapter(directory: storage.Path, base: storage.PathLike | None) -> "AdapterFiles":
    from bert_jax.conversion.adapters import find_adapter

    return find_adapter(directory, base)
