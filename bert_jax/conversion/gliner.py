"""Read and write `gliner_config.json`, which describes a GLiNER: its encoder, its head and its prompts."""

import contextlib
import dataclasses
from typing import Any

from bert_jax import storage
from bert_jax.config import BertConfig
from bert_jax.config.gliner import GlinerConfig
from bert_jax.conversion.checkpoint import CheckpointFiles, Model
from bert_jax.conversion.file_names import GLINER_FILE
from bert_jax.conversion.gliner_files import GlinerFiles
from bert_jax.errors import InputError, printable
from bert_jax.model_files import check_keys
from bert_jax.model_files.gliner import GLINER
from bert_jax.storage import hub
from bert_jax.tokenization import has_tokenizer

_FIELDS = {field.name for field in dataclasses.fields(GlinerConfig)} - {"carried"}
# Keys that are not copied, as they are fixed or written from the model's config.
_NOT_CARRIED = {"encoder_config", "vocab_size", "model_type", "transformers_version", "dtype", "torch_dtype"}


def add_files(files: CheckpointFiles, base: storage.PathLike | None) -> CheckpointFiles:
    """Add the description of a GLiNER. Raises InputError as `read_gliner`."""
    return files._replace(gliner=read_gliner(files.root, base))


def add_settings(model: Model, stack: contextlib.ExitStack) -> Model:
    """Add the head of a GLiNER and the tokens of its prompts; a model of another kind gets a new head."""
    gliner = model.files.gliner
    if gliner is None:
        return model._replace(config=model.config.replace(gliner=GlinerConfig()))
    model = model._replace(config=model.config.replace(gliner=gliner.config))
    return model.with_settings(added_tokens=gliner.config.added_tokens)


def read_gliner(root: storage.Path, base: storage.PathLike | None = None) -> GlinerFiles:
    """Read the description of a GLiNER in a directory with a `gliner_config.json`.

    Args:
        root: the directory.
        base: directory of the encoder, for files that `root` lacks; None = the path in `gliner_config.json`.

    Raises:
        InputError: a value is invalid or not supported, or there is no description of the encoder or no tokenizer.
    """
    where = root / GLINER_FILE
    content = storage.read_json(where, unique_keys=True)
    check_keys(content, GLINER, where, others=())
    fields = {name: content[name] for name in _FIELDS if content.get(name) is not None}
    carried = tuple((name, value) for name, value in content.items() if name not in _FIELDS | _NOT_CARRIED)
    try:
        config = GlinerConfig(**fields, carried=carried)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    encoder = content.get("encoder_config")
    if encoder is None and (root / "config.json").exists():
        encoder = storage.read_json(root / "config.json")
    tokenizer = root
    if encoder is None or not has_tokenizer(root):
        elsewhere = _encoder_directory(root, content.get("model_name"), base, where)
        encoder = storage.read_json(elsewhere / "config.json") if encoder is None else encoder
        tokenizer = root if has_tokenizer(root) else elsewhere
    if not isinstance(encoder, dict):
        raise InputError(f"{where}: encoder_config: expected an object, found {printable(repr(encoder), 60)}")
    # Adding the prompts' tokens may have changed vocab_size, and architectures name another head.
    left_out = ("vocab_size", "architectures")
    encoder = {"model_type": "deberta-v2"} | {key: value for key, value in encoder.items() if key not in left_out}
    return GlinerFiles(config, encoder, where, tokenizer)


def _encoder_directory(
    root: storage.Path, name: Any, base: storage.PathLike | None, where: storage.Path
) -> storage.Path:
    """Return the directory of the encoder: `base`, or the path or hub name in `gliner_config.json`."""
    if base is not None:
        return hub.locate(base)
    lacking = "a tokenizer and encoder_config, or the encoder's directory as model_name"
    if not isinstance(name, str) or not name:
        raise InputError(f"{where}: expected {lacking}, found {printable(repr(name), 60)}")
    for path in (storage.Path(name), root / name):
        if path.is_dir():
            return path
    try:
        return hub.locate(name)
    except InputError as error:
        raise InputError(f"{where}: expected {lacking}, found {printable(repr(name), 60)}. {error}") from None


def gliner_json(config: BertConfig, described: dict[str, Any], tokenizer: Any) -> dict[str, Any]:
    """Return the content of `gliner_config.json`.

    Args:
        config: the architecture, with `gliner`.
        described: the `config.json` of the encoder.
        tokenizer: the `Tokenizer` that is saved with the model, or None.
    """
    assert config.gliner is not None
    content = {"model_name": "", "name": "gliner", "fine_tune": True, "words_splitter_type": "whitespace"}
    content |= {"span_mode": "markerV0", "model_type": "gliner_uni_encoder_span"} | config.gliner.to_json()
    ent = None if tokenizer is None else tokenizer.token_to_id(config.gliner.ent_token)
    index = config.gliner.class_token_index if ent is None else ent
    return content | {"vocab_size": config.vocab_size, "class_token_index": index, "encoder_config": described}
