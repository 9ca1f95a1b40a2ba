"""The tokenizer of static embeddings: tokens of a text without special tokens around them, as tokenizer.json says."""

from typing import Any

import numpy as np
import tokenizers

from bert_jax import storage
from bert_jax.errors import InputError
from bert_jax.tokenization.backends import backend_of
from bert_jax.tokenization.huggingface import BackendTokenizer
from bert_jax.tokenization.layout import RowLayout
from bert_jax.tokenization.patterns import hide_patterns
from bert_jax.tokenization.settings import NO_TOKEN_TYPES
from bert_jax.tokenization.tokenizer_json import check_tokenizer_json

MODEL_TYPES = ("model2vec", "static_embedding")  # of config.json
_NAMES = {
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<s>"),
    "sep": ("[SEP]", "</s>"),
    "mask": ("[MASK]", "<mask>"),
}


class StaticTokenizer(BackendTokenizer):
    """A tokenizer whose rows have no special tokens. `save` writes its limit of length into tokenizer.json.

    Args:
        backend: the library's tokenizer.
        special: special tokens by role.
        settings: `model_max_length` and `truncation_side`.
        sentencepiece_model: as for `BackendTokenizer`.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        special: dict[str, str],
        settings: dict[str, Any],
        sentencepiece_model: bytes | None = None,
    ):
        backend.post_processor = None
        super().__init__(backend, special, settings, sentencepiece_model)
        self.layout = RowLayout((), (), (), 0)

    def __call__(self, *args: Any, **options: Any) -> dict[str, Any]:  # type: ignore[override]
        inputs = super().__call__(*args, **options)
        if inputs["input_ids"].shape[1]:
            return inputs
        fill = {"input_ids": self.pad_id}  # no text has a token: a row has at least one position
        return {
            name: np.pad(array, [(0, 0), (0, 1), *[(0, 0)] * (array.ndim - 2)], constant_values=fill.get(name, 0))
            for name, array in inputs.items()
        }

    @property
    def saved_files(self) -> tuple[str, ...]:
        return ("tokenizer.json",)

    def _json(self) -> str:
        if self.max_length is None:
            return super()._json()
        content = tokenizers.Tokenizer.from_str(super()._json())
        content.enable_truncation(self.max_length, direction=self.truncation_side)
        return content.to_str(pretty=True)

    def save(self, directory: storage.PathLike) -> None:
        directory = storage.Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        storage.write_atomically(directory / "tokenizer.json", self._json())


def has_static_tokenizer(directory: storage.Path, model_type: Any) -> bool:
    """Return whether a directory holds static embeddings; `model_type` is that of its config.json, if it has one."""
    if model_type is not None:
        return model_type in MODEL_TYPES
    for root in (directory, directory.parent):
        if not (where := root / "modules.json").exists():
            continue
        modules = storage.parse_json(storage.read_text(where), where)
        for module in modules if isinstance(modules, list) else ():
            kind, path = (module.get(key) if isinstance(module, dict) else None for key in ("type", "path"))
            is_static = isinstance(kind, str) and kind.endswith("StaticEmbedding") and "Sparse" not in kind
            if is_static and isinstance(path, str) and str(root / path) == str(directory):
                return True
    return False


def load_static_tokenizer(path: storage.Path) -> StaticTokenizer:
    """Load the `tokenizer.json` of a directory as it is, like the library `tokenizers`.

    Raises:
        InputError: it is missing or damaged.
    """
    where = path / "tokenizer.json"
    if not where.exists():
        raise InputError(f"{path}: expected a tokenizer.json, which static embeddings need, found none")
    content = storage.read_json(where)
    try:
        check_tokenizer_json(content)
        settings: dict[str, Any] = {**NO_TOKEN_TYPES}
        if truncation := content.pop("truncation", None):
            settings["model_max_length"] = truncation.get("max_length")
            settings["truncation_side"] = str(truncation.get("direction", "right")).lower()
        content.pop("padding", None)
        content["post_processor"] = None
        hide_patterns(content)
        backend = backend_of(content)
        tokenizer = StaticTokenizer(backend, special_tokens(backend), settings)
        tokenizer.check_patterns()
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    return tokenizer


def special_tokens(backend: tokenizers.Tokenizer) -> dict[str, str]:
    """Return the special tokens of a vocabulary by role; for a role of BERT that it lacks, its first token.

    No row has these tokens, but for padding, which no vector counts.
    """
    special = {
        role: next((name for name in names if backend.token_to_id(name) is not None), "")
        for role, names in _NAMES.items()
    }
    first: str = special["pad"] or special["unk"] or backend.id_to_token(0) or ""
    return {role: name or first for role, name in special.items() if name or role in ("pad", "cls", "sep")}
