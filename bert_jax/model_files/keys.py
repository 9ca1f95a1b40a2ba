"""The type of a key in a JSON file of a model directory: honoured, harmless or refused."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from bert_jax.errors import InputError, logger, printable

_EMPTY: tuple[Any, ...] = (None, False, "", [], {}, 0)  # values of unknown keys that cause no warning
_MAX_VALUE = 60  # most characters of a value in a message
_log = logger(__name__)
_named: set[tuple[str, str]] = set()


@dataclasses.dataclass(frozen=True)
class FileKey:
    """A key of a file, and how it is treated.

    Attributes:
        name: the key.
        fate: `honoured`: the key is applied. `harmless`: the key does not affect the model's outputs. `refused`: the
            key affects the outputs and is not supported, so that a value outside `defaults` is an error.
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
    """Return a key that does not affect the model's outputs."""
    return FileKey(name, "harmless", says)


def refused(name: str, says: str, *defaults: Any) -> FileKey:
    """Return a key whose only accepted values are None and `defaults`."""
    return FileKey(name, "refused", says, (None, *defaults))


def check_keys(content: Mapping[str, Any], table: Iterable[FileKey], where: object) -> None:
    """Check the keys of a file against its table.

    An unknown key with a value that is not empty causes a warning, once per file.

    Args:
        content: the file's JSON object.
        table: the keys of the file.
        where: the file, for messages.

    Raises:
        InputError: a refused key has a value that is not accepted.
    """
    known = {key.name: key for key in table}
    unknown = []
    for name, value in content.items():
        key = known.get(name)
        if key is None:
            if not any(value is empty or value == empty for empty in _EMPTY):
                unknown.append(name)
        elif key.fate == "refused" and value not in key.defaults:
            found = printable(repr(value), _MAX_VALUE)
            expected = " or ".join(repr(default) for default in key.defaults if default is not None) or "none"
            raise InputError(f"{where}: {name}: expected {expected}, found {found}: {key.says}")
    fresh = [name for name in unknown if (str(where), name) not in _named]
    _named.update((str(where), name) for name in fresh)
    if fresh:
        shown = ", ".join(f"{name}={content[name]!r}" for name in fresh)
        _log.warning("%s: unknown keys are ignored: %s", where, printable(shown))


# Keys that the `config.json` of several families have.
LAYER_KEYS: tuple[FileKey, ...] = (
    honoured("intermediate_size", "width of the feed-forward layers"),
    honoured("hidden_act", "activation of the feed-forward layers"),
    honoured("hidden_dropout_prob", "dropout rate"),
    honoured("attention_probs_dropout_prob", "dropout rate"),
    honoured("layer_norm_eps", "epsilon of LayerNorm"),
)
SEGMENT_KEYS: tuple[FileKey, ...] = (
    honoured("type_vocab_size", "rows of the segment embedding; 0 = none"),
    honoured("classifier_dropout", "dropout rate"),
)
ABSOLUTE_KEYS: tuple[FileKey, ...] = (
    refused("position_embedding_type", "other position embeddings are not supported", "absolute"),
)
