"""The treatment of keys in the JSON files of a model directory: honoured, refused, harmless or unread."""

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from bert_jax.errors import InputError, logger, printable

# Keys that most files have and that change no output: versions, paths, dtypes, devices, implementations, defaults of
# calls, ids that are also in the tokenizer's files, and keys that TensorFlow's BERT wrote.
USUAL_KEYS = frozenset((
    "__version__", "_attn_implementation", "_attn_implementation_autoset", "_commit_hash", "_from_model_config",
    "_name_or_path", "_num_labels", "adapters", "attn_implementation", "auto_map", "bos_token_id",
    "chunk_size_feed_forward", "cls_token_id", "device_map", "directionality", "dtype", "eos_token_id",
    "finetuning_task", "gradient_checkpointing", "initializer_cutoff_factor", "language", "low_cpu_mem_usage",
    "mask_token_id", "model_name", "name", "name_or_path", "output_attentions", "output_hidden_states", "output_past",
    "pad_token_id", "pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head",
    "pooler_type", "return_dict", "revision", "sep_token_id", "sparse_pred_ignore_index", "summary_last_dropout",
    "tie_weights_", "tokenizer_class", "torch_dtype", "torchscript", "transformers_version", "trust_remote_code",
    "unk_token_id", "unpad_inputs", "use_bfloat16", "use_cache", "use_fast", "use_memory_efficient_attention",
    "vocab_file",
))  # fmt: skip
_EMPTY: tuple[Any, ...] = (None, False, "", [], {}, 0)  # values of unread keys that are not reported
_ALIKE = 0.86  # `difflib` ratio above which a name counts as a misspelt key
_MAX_COMPARED = 100  # maximum number of unread keys that are compared with the table
_MAX_VALUE = 60  # maximum number of characters of a value in a message
_log = logger(__name__)
_reported: set[tuple[str, str]] = set()


@dataclasses.dataclass(frozen=True)
class FileKey:
    """A key of a file, and how it is treated.

    Attributes:
        name: the key.
        fate: `honoured`: the key is applied. `refused`: the key affects the outputs and is not supported, so that a
            value outside `defaults` is an error. `harmless`: the key has no effect in this file, though a key of
            the same or a similar name has an effect elsewhere.
        says: meaning of the key, or reason of its treatment; a phrase without a full stop.
        defaults: the accepted values of a refused key.
    """

    name: str
    fate: Literal["honoured", "harmless", "refused"]
    says: str
    defaults: tuple[Any, ...] = (None,)


def honoured(name: str, says: str) -> FileKey:
    """Return a key that is applied."""
    return FileKey(name, "honoured", says)


def harmless(name: str, says: str) -> FileKey:
    """Return a key that does not affect the model's outputs, though its name is that of a key that does elsewhere."""
    return FileKey(name, "harmless", says)


def refused(name: str, says: str, *defaults: Any) -> FileKey:
    """Return a key whose only accepted values are None and `defaults`."""
    return FileKey(name, "refused", says, (None, *defaults))


def unread_keys(content: Mapping[str, Any], table: Iterable[FileKey]) -> list[str]:
    """Return the keys of a file that are neither in its table nor in `USUAL_KEYS`, and whose value is not empty."""
    known = USUAL_KEYS | {key.name for key in table}
    return [
        name
        for name, value in content.items()
        if name not in known and not any(value is empty or value == empty for empty in _EMPTY)
    ]


def check_keys(
    content: Mapping[str, Any], table: Iterable[FileKey], where: object, others: Iterable[str] | None = None
) -> None:
    """Check the keys of a file against its table.

    Unread keys are reported in one line, once per file: a warning for those that may change the outputs, else at level
    INFO.

    Args:
        content: the file's JSON object.
        table: the keys of the file.
        where: the file, for messages.
        others: names of keys that change the outputs of other models; not iterated if all keys are known. An unread
            key causes a warning only if it has one of these names, or one like a key of the table; None = always.

    Raises:
        InputError: a refused key has a value that is not accepted.
    """
    keys = {key.name: key for key in table}
    for name, value in content.items():
        key = keys.get(name)
        if key is not None and key.fate == "refused" and value not in key.defaults:
            expected = " or ".join(repr(default) for default in key.defaults if default is not None) or "none"
            raise InputError(
                f"{where}: {name}: expected {expected}, found {printable(repr(value), _MAX_VALUE)}: {key.says}"
            )
    unread = [name for name in unread_keys(content, keys.values()) if (str(where), name) not in _reported]
    if not unread:
        return
    _reported.update((str(where), name) for name in unread)
    elsewhere = None if others is None else {*others}
    suspects = {}
    for number, name in enumerate(unread):
        alike = difflib.get_close_matches(name, keys, n=1, cutoff=_ALIKE) if number < _MAX_COMPARED else []
        if elsewhere is None or name in elsewhere or alike:
            suspects[name] = f"{name}={content[name]!r}" + (f" (did you mean {alike[0]!r}?)" if alike else "")
    if suspects:
        _log.warning("%s: unknown keys are ignored: %s", where, printable(", ".join(suspects.values())))
    if rest := [name for name in unread if name not in suspects]:
        noun = "key is" if len(rest) == 1 else "keys are"
        _log.info("%s: %d %s not read: %s", where, len(rest), noun, printable(", ".join(rest)))


ALWAYS_ROTARY = harmless("position_embedding_type", "always rotary")
