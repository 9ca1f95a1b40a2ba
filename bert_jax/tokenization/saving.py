"""Write the files of a tokenizer of the `tokenizers` library, as transformers reads them."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import tokenizers

from bert_jax import storage
from bert_jax.tokenization.backends import part_of
from bert_jax.tokenization.settings import ROLES

# Settings that name files or code in the original directory, which a saved copy may lack.
_NOT_SAVED = ("vocab_file", "merges_file", "tokenizer_file", "special_tokens_map_file", "added_tokens_file",
              "name_or_path", "auto_map")  # fmt: skip
_MODEL_FILES = {"Albert": "spiece.model", "BigBird": "spiece.model", "DebertaV2": "spm.model"}


def save(
    directory: storage.PathLike,
    tokenizer_json: str,
    special: Mapping[str, str],
    settings: dict[str, Any],
    vocabulary: Mapping[str, str | bytes],
) -> None:
    """Write tokenizer.json and the files beside it; creates the directory.

    Args:
        directory: the directory.
        tokenizer_json: content of tokenizer.json.
        special: special tokens by role.
        settings: content of `tokenizer_config.json` as read.
        vocabulary: name -> content of further files.
    """
    directory = storage.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    tokens = {f"{role}_token": token for role, token in special.items()}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast"} | saved_settings(settings, tokens)
    storage.write_atomically(directory / "tokenizer.json", tokenizer_json)
    storage.write_atomically(directory / "tokenizer_config.json", json.dumps(settings, indent=2) + "\n")
    storage.write_atomically(directory / "special_tokens_map.json", json.dumps(tokens, indent=2) + "\n")
    for name, content in vocabulary.items():
        storage.write_atomically(directory / name, content)


def vocabulary_files(
    backend: tokenizers.Tokenizer,
    pieces: Sequence[str],
    settings: Mapping[str, Any],
    sentencepiece_model: bytes | None,
) -> dict[str, str | bytes]:
    """Return name -> content of the family's vocabulary files beside tokenizer.json.

    Args:
        backend: the library's tokenizer.
        pieces: tokens of its model, in the order of their ids.
        settings: content of `tokenizer_config.json`.
        sentencepiece_model: bytes of the original SentencePiece model; None = there is none.
    """

    def is_a(tokenizer_class: str) -> bool:  # true for the class and for its fast variant
        return str(settings.get("tokenizer_class")).startswith(tokenizer_class)

    if isinstance(backend.model, tokenizers.models.WordPiece) or is_a("EsmTokenizer"):
        return {"vocab.txt": "".join(f"{piece}\n" for piece in pieces)}
    if sentencepiece_model is not None:
        name = next((name for kind, name in _MODEL_FILES.items() if is_a(kind)), "sentencepiece.bpe.model")
        return {name: sentencepiece_model}
    if is_a("RobertaTokenizer"):
        merges = (part_of(backend.model) or {})["merges"]
        vocabulary = {piece: i for i, piece in enumerate(pieces) if piece}
        return {
            "vocab.json": json.dumps(vocabulary, ensure_ascii=False),
            "merges.txt": "#version: 0.2\n" + "".join(f"{first} {second}\n" for first, second in merges),
        }
    return {}


def saved_settings(settings: dict[str, Any], tokens: dict[str, str]) -> dict[str, Any]:
    """Return the content of `tokenizer_config.json` for a saved tokenizer.

    Args:
        settings: the settings as read.
        tokens: the special tokens by key, such as "mask_token".
    """
    kept = {name: value for name, value in settings.items() if name not in _NOT_SAVED}
    further = kept.pop("extra_special_tokens", None)
    if isinstance(further, list):  # every version of transformers reads this name
        kept["additional_special_tokens"] = [_content(token) for token in further]
    elif further:
        kept["extra_special_tokens"] = {name: _content(token) for name, token in further.items()}
    kept |= {name: _content(value) for name, value in kept.items() if name.endswith("_token")}
    # A missing role is written as null; otherwise transformers would add its default token.
    kept |= {f"{role}_token": tokens.get(f"{role}_token") for role in ROLES}
    return kept


def _content(token: Any) -> Any:
    """Return the text of an added token."""
    return token.get("content") if isinstance(token, dict) else token
